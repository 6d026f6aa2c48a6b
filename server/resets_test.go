package server

import (
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// Two connections of one client together use up the resets that are allowed at once, and more.
func TestResetsAreLimitedByIdentity(t *testing.T) {
	b := newBudget(1 << 30)
	one, two := b.begin(addressed("192.0.2.1:1")), b.begin(addressed("192.0.2.1:2"))
	other := b.begin(addressed("192.0.2.2:1"))
	now := time.Now()
	if wait := one.limiter.charge(now, resetsAtOnce/2); wait != 0 {
		t.Errorf("the first resets have to wait for %v", wait)
	}
	if wait := two.limiter.charge(now, resetsAtOnce/2); wait != 0 {
		t.Errorf("the last resets that may come at once have to wait for %v", wait)
	}
	if wait := two.limiter.charge(now, resetsPerSecond); wait != time.Second {
		t.Errorf("after one second's resets too many, another connection waits for %v", wait)
	}
	if wait := other.limiter.charge(now, 1); wait != 0 {
		t.Errorf("another client waits for %v", wait)
	}
	one.close()
	two.close()
	if again := b.begin(addressed("192.0.2.1:3")); !again.limiter.owes(now) {
		t.Error("a client that connects again owes nothing")
	} else {
		again.close()
	}
	other.close()
	if b.forgetResetLimiters(now); len(b.resetLimiters) != 1 {
		t.Errorf("%d resetLimiters are remembered, want that of the client that owes something", len(b.resetLimiters))
	}
	if b.forgetResetLimiters(now.Add(time.Minute)); len(b.resetLimiters) != 0 {
		t.Errorf("%d resetLimiters are remembered of clients that have gone", len(b.resetLimiters))
	}
}

// The client resets requests that are open, answered, and unknown. Only the open ones count.
func TestMeterCountsResetsOfOpenRequests(t *testing.T) {
	a := newBudget(1 << 30).begin(nil)
	c := newConversation()
	for _, stream := range []uint32{1, 3, 5} {
		c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0x82}, EndHeaders: true})
	}
	a.meter.received(c.Bytes())
	answer := newConversation()
	answer.Reset()
	answer.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
	answer.WriteRSTStream(5, http2.ErrCodeRefusedStream)
	a.meter.sent(answer.Bytes())
	c.Reset()
	for _, stream := range []uint32{1, 3, 5, 7} {
		c.WriteRSTStream(stream, http2.ErrCodeCancel)
	}
	a.meter.received(c.Bytes())
	if a.meter.resets != 2 {
		t.Errorf("%d resets are counted, want those of the requests without an answer: one by either side", a.meter.resets)
	}
}

// A client that resets too often is not read for a while. That pause ends when the connection is closed.
func TestClosedConnectionEndsItsReadPause(t *testing.T) {
	a := newBudget(1 << 30).begin(addressed("192.0.2.1:1"))
	a.close()
	a.pause(time.Hour)
}

// connFrom is a connection that has nothing but an address.
type connFrom struct {
	net.Conn
	from string
}

func addressed(from string) net.Conn { return connFrom{from: from} }

func (a connFrom) RemoteAddr() net.Addr { return addrOf(a.from) }

type addrOf string

func (addrOf) Network() string  { return "tcp" }
func (a addrOf) String() string { return string(a) }
