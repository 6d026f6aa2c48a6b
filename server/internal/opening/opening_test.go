package opening

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
)

// The acknowledgement of the first settings is removed, wherever the reads begin and end.
func TestFirstAcknowledgementOfSettingsIsRemoved(t *testing.T) {
	var sent, want bytes.Buffer
	for _, out := range []*bytes.Buffer{&sent, &want} {
		out.WriteString(http2.ClientPreface)
		framer := http2.NewFramer(out, nil)
		if err := framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush, Val: 0}); err != nil {
			t.Fatal(err)
		}
		if out == &sent {
			if err := framer.WriteSettingsAck(); err != nil {
				t.Fatal(err)
			}
		}
		if err := framer.WriteData(1, false, []byte("some data")); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteSettingsAck(); err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteData(1, true, []byte("more")); err != nil {
			t.Fatal(err)
		}
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader} {
		got, err := io.ReadAll(iotest.HalfReader(WithoutFirstAck(readerConn{r: wrap(bytes.NewReader(sent.Bytes()))})))
		if err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want.Bytes())
		}
	}
}

// A Recorder reads no byte beyond its limit, and keeps those that it has read.
func TestRecorderReadsUpToItsLimit(t *testing.T) {
	from := bytes.NewReader([]byte("what a client has sent"))
	r := Record(from, 6)
	if r.Full() {
		t.Error("it is full before it has read")
	}
	got, err := io.ReadAll(r)
	if err != nil || string(got) != "what a" || string(r.Bytes()) != "what a" || !r.Full() {
		t.Errorf("read %q, %v; kept %q, full %t", got, err, r.Bytes(), r.Full())
	}
	if rest, err := io.ReadAll(from); err != nil || string(rest) != " client has sent" {
		t.Errorf("left %q, %v", rest, err)
	}
	if r = Record(bytes.NewReader([]byte("short")), 6); r.Full() {
		t.Error("it is full before it has read")
	}
	if got, err := io.ReadAll(r); err != nil || string(got) != "short" || r.Full() {
		t.Errorf("read %q, %v; full %t", got, err, r.Full())
	}
}

// readerConn is a connection of which only reads are used.
type readerConn struct {
	net.Conn
	r io.Reader
}

func (c readerConn) Read(p []byte) (int, error) { return c.r.Read(p) }
