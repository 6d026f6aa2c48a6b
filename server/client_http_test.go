package server

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requestHeaders encodes the headers of the first request on a connection.
func requestHeaders(t *testing.T, method, path string) []byte {
	t.Helper()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: path}, {Name: ":authority", Value: "localhost"},
	} {
		wantOK(t, encoder.WriteField(f))
	}
	return block.Bytes()
}

// net/http allocates a frame when its header has arrived, so one that announces 1 MiB must end the connection.
func TestHugeFrameClosesTheHTTPConnection(t *testing.T) {
	f := startFront(t)
	c := dialRaw(t, f.server.Addr(), 1<<16-1)
	wantOK(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeaders(t, "POST", "/v3/watch"), EndHeaders: true}))
	_, err := c.Conn.Write([]byte{0x10, 0, 0, 0, 0, 0, 0, 0, 1}) // DATA of 1 MiB on stream 1
	wantOK(t, err)
	c.await("the end of the connection", func(frame http2.Frame) bool {
		g, ok := frame.(*http2.GoAwayFrame)
		return ok && g.ErrCode == http2.ErrCodeFrameSize
	})
}

// A client that gives no room for an answer keeps its request open, whatever it has requested.
func TestUnreadHTTPAnswersCountAsOpenRequests(t *testing.T) {
	f := startFront(t)
	for _, path := range []string{"/version", "/health", "/metrics", "/nothing", "/v3/nothing"} {
		c := dialRaw(t, f.server.Addr(), 0)
		wantOK(t, c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestHeaders(t, "GET", path), EndHeaders: true, EndStream: true}))
		c.await("the headers of "+path, func(frame http2.Frame) bool { _, ok := frame.(*http2.HeadersFrame); return ok })
		wantEqual(t, "open requests while the answer of "+path+" waits", f.server.budget.open.Load(), 1)
		c.Close()
		eventually(t, "the request has ended", func() bool { return f.server.budget.open.Load() == 0 })
	}
}

func TestHTTPRequestsAreRefusedIfTooManyAreOpen(t *testing.T) {
	f := startFront(t)
	most := f.server.budget.openMost
	f.server.budget.open.Add(most + 1)
	for _, version2 := range []bool{false, true} {
		c := f.overHTTP(version2, nil)
		for _, path := range []string{"/version", "/health", "/metrics", "/v3/kv/range", "/v3beta/kv/range"} {
			wantEqual(t, path, c.do(http.MethodPost, path, "{}").StatusCode, http.StatusTooManyRequests)
		}
	}
	eventually(t, "refusals have ended", func() bool { return f.server.budget.open.Load() == most+1 })
	f.server.budget.open.Add(-most - 1)
	wantEqual(t, "afterwards", f.overHTTP(true, nil).do(http.MethodGet, "/version", "").StatusCode, http.StatusOK)
}

// A window that grows would let a stalled stream hold more than its request counts.
func TestGatewayConnectionHasFixedWindows(t *testing.T) {
	f := startFront(t)
	conn, err := f.server.gateway.pipe.Dial()
	wantOK(t, err)
	_, err = io.WriteString(conn, http2.ClientPreface)
	wantOK(t, err)
	wantOK(t, http2.NewFramer(conn, nil).WriteSettings())
	wantFixedWindows(t, "the server", conn)

	unstarted, err := newGateway(f.server)
	wantOK(t, err)
	t.Cleanup(unstarted.stop)
	unstarted.conn.Connect()
	conn, err = unstarted.pipe.Accept()
	wantOK(t, err)
	_, err = io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
	wantOK(t, err)
	wantFixedWindows(t, "the client", conn)
}

// wantFixedWindows reads settings, and the update of the connection's window that follows them.
func wantFixedWindows(t *testing.T, who string, conn net.Conn) {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	wantOK(t, conn.SetDeadline(time.Now().Add(waitLimit)))
	framer := http2.NewFramer(conn, conn)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatalf("%s announces no window of its own: %v", who, err)
		}
		if update, ok := frame.(*http2.WindowUpdateFrame); ok {
			wantEqual(t, who+"'s window", update.Increment, connWindow-(1<<16-1))
			return
		}
	}
}
