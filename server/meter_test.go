package server

import (
	"bytes"
	"io"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// conversation writes frames of a client into a meter.
type conversation struct {
	bytes.Buffer
	*http2.Framer
}

func newConversation() *conversation {
	c := new(conversation)
	c.Framer = http2.NewFramer(&c.Buffer, nil)
	c.WriteString(http2.ClientPreface)
	c.WriteSettings()
	return c
}

// The meter counts bytes of incomplete messages, however the bytes are split into reads.
func TestMeterCountsIncompleteMessages(t *testing.T) {
	half := append([]byte{0, 0, 0, 0, 100}, make([]byte, 50)...)
	steps := []struct {
		name         string
		write        func(c *conversation)
		open, unread int64
	}{
		{"a request without a message", func(c *conversation) {
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
		}, 1, 0},
		{"half of a message", func(c *conversation) { c.WriteData(1, false, half) }, 1, 55 + frameCost},
		{"another request, with padding that is no part of its message", func(c *conversation) {
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}, EndHeaders: true})
			c.WriteDataPadded(3, false, half, make([]byte, 45))
		}, 2, 2 * (55 + frameCost)},
		{"the rest of the first", func(c *conversation) { c.WriteData(1, true, make([]byte, 50)) }, 2, 55 + frameCost},
		{"data of a stream that was not opened", func(c *conversation) { c.WriteData(9, false, half) }, 2, 55 + frameCost},
		{"nothing in many frames", func(c *conversation) {
			for range 10 {
				c.WriteData(3, false, nil)
			}
		}, 2, 55 + 11*frameCost},
		{"the second is taken back", func(c *conversation) { c.WriteRSTStream(3, http2.ErrCodeCancel) }, 1, 0},
	}
	for _, cut := range []int{1, 2, 7, 1 << 20} {
		a := newBudget(1 << 30).begin(nil)
		c := newConversation()
		for _, s := range steps {
			s.write(c)
			for c.Len() > 0 {
				a.meter.received(c.Next(cut))
			}
			if a.open.Load() != s.open || a.unread.Load() != s.unread {
				t.Errorf("cut into %d, after %s: %d open, %d bytes unread; want %d and %d", cut, s.name, a.open.Load(), a.unread.Load(), s.open, s.unread)
			}
		}
		if since := a.meter.oldest(); !since.IsZero() {
			t.Errorf("cut into %d: the rest of a message is owed since %v", cut, since)
		}
		var answer bytes.Buffer
		out := http2.NewFramer(&answer, nil)
		out.WriteSettings()
		out.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true})
		out.WriteData(1, false, []byte("answer"))
		for answer.Len() > 0 {
			a.meter.sent(answer.Next(cut))
		}
		if a.open.Load() != 1 {
			t.Errorf("cut into %d: the request ended before its answer did", cut)
		}
		out.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
		a.meter.sent(answer.Bytes())
		if a.open.Load() != 0 || a.budget.open.Load() != 0 {
			t.Errorf("cut into %d: the request outlived its answer", cut)
		}
	}
}

// The connection closes in the middle of a message.
func TestClosedConnectionReleasesItsAccount(t *testing.T) {
	b := newBudget(1 << 30)
	a := b.begin(nil)
	c := newConversation()
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}, EndHeaders: true})
	c.WriteData(1, false, []byte{0, 0, 0, 0, 100, 1})
	rest, _ := io.ReadAll(c)
	a.meter.received(rest)
	if b.unread.Load() == 0 || b.open.Load() != 1 || time.Since(a.meter.oldest()) > waitLimit {
		t.Fatal("the message is not counted")
	}
	a.meter.close()
	a.close()
	if b.unread.Load() != 0 || b.open.Load() != 0 {
		t.Errorf("%d bytes and %d requests are left", b.unread.Load(), b.open.Load())
	}
	a.meter.received([]byte{0, 0, 1, 0, 0, 0, 0, 0, 1, 7}) // bytes that were read in the meantime
	if b.unread.Load() != 0 || b.open.Load() != 0 {
		t.Error("a closed connection counts")
	}
}
