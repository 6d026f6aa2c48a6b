package server

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// rawHTTP2 is a client that sends frames one by one.
type rawHTTP2 struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
}

func dialPort(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	wantOK(t, err)
	t.Cleanup(func() { conn.Close() })
	wantOK(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	return conn
}

// openHTTP2 sends the preface and settings, and acknowledges the server's.
func openHTTP2(t *testing.T, addr string) *rawHTTP2 {
	t.Helper()
	conn := dialPort(t, addr)
	_, err := io.WriteString(conn, http2.ClientPreface)
	wantOK(t, err)
	c := &rawHTTP2{t, conn, http2.NewFramer(conn, conn)}
	wantOK(t, c.framer.WriteSettings())
	c.settings()
	return c
}

// settings waits for settings, and acknowledges them.
func (c *rawHTTP2) settings() {
	c.t.Helper()
	for {
		frame, err := c.framer.ReadFrame()
		wantOK(c.t, err)
		if s, ok := frame.(*http2.SettingsFrame); ok && !s.IsAck() {
			wantOK(c.t, c.framer.WriteSettingsAck())
			return
		}
	}
}

// request sends a request, whose headers are split into frames of n bytes.
func (c *rawHTTP2) request(n int, fields ...string) {
	c.t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		wantOK(c.t, encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
	}
	first := block.Next(n)
	wantOK(c.t, c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: first, EndHeaders: block.Len() == 0, EndStream: true}))
	for block.Len() > 0 {
		part := block.Next(n)
		wantOK(c.t, c.framer.WriteContinuation(1, block.Len() == 0, part))
	}
}

// status waits for the headers of the answer.
func (c *rawHTTP2) status() string {
	c.t.Helper()
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := c.framer.ReadFrame()
		wantOK(c.t, err)
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			return h.PseudoValue("status") + " " + contentType(h)
		}
	}
}

func contentType(h *http2.MetaHeadersFrame) string {
	for _, f := range h.RegularFields() {
		if f.Name == "content-type" {
			return f.Value
		}
	}
	return ""
}

func TestFirstRequestDecidesWhatAConnectionCarries(t *testing.T) {
	f := startFront(t)
	for _, pieces := range []int{1 << 14, 7} {
		c := openHTTP2(t, f.server.Addr())
		c.request(pieces, ":method", "GET", ":scheme", "http", ":path", "/readyz", ":authority", "localhost")
		wantEqual(t, "an HTTP/2 request", c.status(), "200 text/plain; charset=utf-8")
		c = openHTTP2(t, f.server.Addr())
		c.request(pieces, ":method", "POST", ":scheme", "http", ":path", "/etcdserverpb.KV/Nothing", ":authority", "localhost",
			"content-type", "application/grpc", "te", "trailers")
		wantEqual(t, "a gRPC request", c.status(), "200 application/grpc")
	}
}

// A connection without a request becomes one of gRPC.
func TestIdleHTTP2ConnectionIsOfGRPC(t *testing.T) {
	f := startFront(t)
	c := openHTTP2(t, f.server.Addr())
	c.settings() // those of gRPC's transport come once the server has decided
	c.request(1<<14, ":method", "GET", ":scheme", "http", ":path", "/readyz", ":authority", "localhost")
	wantEqual(t, "a late request that is not gRPC", c.status(), "415 application/grpc")
}

// Neither silence nor noise on one connection affects others, or keeps the server from stopping.
func TestUndecidedConnectionsHarmNobody(t *testing.T) {
	f := startFront(t)
	for _, begin := range []string{"", "P", "PRI * HTTP/2.0\r\n", http2.ClientPreface, http2.ClientPreface + "\x00\x00\x05\x01\x00", "GET / HTT"} {
		_, err := io.WriteString(dialPort(t, f.server.Addr()), begin)
		wantOK(t, err)
	}
	noise := dialPort(t, f.server.Addr())
	_, err := io.WriteString(noise, http2.ClientPreface)
	wantOK(t, err)
	// Frames of a kind that nobody knows, without end.
	frame := append([]byte{0, 0x10, 0, 0xfa, 0, 0, 0, 0, 0}, make([]byte, 0x1000)...)
	for range 64 {
		if _, err := noise.Write(frame); err != nil {
			break
		}
	}
	_, err = f.kv.Put(f.ctx(), &pb.PutRequest{Key: []byte("k")})
	wantOK(t, err)
	eventually(t, "all are counted", func() bool { return f.server.limits.connections[0].Open() >= 7 })
}

// countedReads is a connection that counts the bytes which are read of it.
type countedReads struct {
	net.Conn
	bytes int
}

func (c *countedReads) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes += n
	return n, err
}

// The server decides about a client that sends no request by what it has read, and reads no more than the limit for that. gRPC
// receives all that the client has sent. The client sends more than the limit, and then waits. So a server that read on
// would decide only after protocolLimit.
func TestUndecidedConnectionIsReadUpToTheLimit(t *testing.T) {
	p, err := newProtocols(nil, 1, nil, lifetime.New(nil))
	wantOK(t, err)
	for what, c := range map[string]struct {
		frame []byte
		read  int
	}{
		"frames of a kind that nobody knows": {append([]byte{0, 1, 0, 0xfa, 0, 0, 0, 0, 0}, make([]byte, 0x100)...), protocolBytes},
		"a frame that is too long":           {append([]byte{0, 0x40, 1, 0xfa, 0, 0, 0, 0, 0}, make([]byte, 0x4001)...), protocolBuffer},
	} {
		t.Run(what, func(t *testing.T) {
			sent := []byte(http2.ClientPreface)
			for len(sent) < 4*protocolBytes {
				sent = append(sent, c.frame...)
			}
			server, client := net.Pipe()
			defer client.Close()
			defer server.Close()
			for _, do := range []func(){func() { _, _ = client.Write(sent) }, func() { _, _ = io.Copy(io.Discard, client) }} {
				go do() // ends when the test closes both ends
			}
			counted := &countedReads{Conn: server}
			conn, isGRPC, err := p.tell(counted, nil, time.Now().Add(waitLimit))
			wantOK(t, err)
			wantEqual(t, "gRPC", isGRPC, true)
			wantEqual(t, "bytes read", counted.bytes, c.read)
			wantOK(t, conn.SetReadDeadline(time.Now().Add(waitLimit)))
			received := make([]byte, len(sent))
			_, err = io.ReadFull(conn, received)
			wantOK(t, err)
			wantEqual(t, "gRPC receives what was sent", bytes.Equal(received, sent), true)
		})
	}
}

// timedConn is a connection that records the latest end of reading that was set.
type timedConn struct {
	net.Conn
	latest time.Time
}

func (c *timedConn) SetReadDeadline(t time.Time) error {
	if t.After(c.latest) {
		c.latest = t
	}
	return c.Conn.SetReadDeadline(t)
}

// beginSilently returns the server's end of a connection whose client sends these bytes only, and closes it after waitLimit.
func beginSilently(t *testing.T, sent string, end time.Time) (*clientConn, *timedConn) {
	t.Helper()
	server, client := net.Pipe()
	late := time.AfterFunc(waitLimit, func() { client.Close() })
	t.Cleanup(func() { late.Stop(); client.Close() })
	go func() { // ends when the test closes its end
		_, _ = io.WriteString(client, sent)
		_, _ = io.Copy(io.Discard, client)
	}()
	timed := &timedConn{Conn: server}
	return &clientConn{countedConn: &countedConn{Conn: timed, leave: func() {}}, decided: end}, timed
}

// The time to find the protocol counts from the acceptance of the connection, whatever its steps are.
func TestProtocolIsDecidedWithinTheLimit(t *testing.T) {
	p, err := newProtocols(nil, 1, nil, lifetime.New(nil))
	wantOK(t, err)
	for sent, want := range map[string]error{"": os.ErrDeadlineExceeded, "P": os.ErrDeadlineExceeded, http2.ClientPreface: nil} {
		end := time.Now().Add(10 * time.Millisecond)
		client, timed := beginSilently(t, sent, end)
		conn, _, err := p.ServerHandshake(client)
		if !errors.Is(err, want) {
			t.Errorf("after %q: %v, want %v", sent, err, want)
		}
		if err == nil {
			conn.Close()
		}
		if timed.latest.After(end) {
			t.Errorf("after %q the server reads until %v after the limit", sent, timed.latest.Sub(end))
		}
	}
}

// A step that begins after the server has begun to stop must not wait for the client.
func TestStopIsNotDelayedByAnUndecidedConnection(t *testing.T) {
	p, err := newProtocols(nil, 1, nil, lifetime.New(nil))
	wantOK(t, err)
	p.life.End(lifetime.ErrStopping)
	client, timed := beginSilently(t, http2.ClientPreface, time.Now().Add(waitLimit))
	defer client.Close()
	if err := p.readUntil(timed, time.Now().Add(waitLimit)); !errors.Is(err, lifetime.ErrStopping) {
		t.Errorf("after the stop: %v, want %v", err, lifetime.ErrStopping)
	}
	if _, _, err := p.tell(timed, nil, time.Now().Add(waitLimit)); !errors.Is(err, lifetime.ErrStopping) {
		t.Errorf("telling the protocol after the stop: %v, want %v", err, lifetime.ErrStopping)
	}
}
