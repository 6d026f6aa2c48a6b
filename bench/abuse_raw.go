package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// raw is a connection that speaks HTTP/2 as no client library would. One goroutine writes; another reads what the
// server says and throws it away, but for what it counts.
type raw struct {
	conn    net.Conn
	out     *bufio.Writer
	framer  *http2.Framer
	encoder *hpack.Encoder
	block   bytes.Buffer
	next    uint32

	answered atomic.Int64 // streams that the server ended with HEADERS
	reset    atomic.Int64 // streams that it reset
	received atomic.Int64 // bytes of DATA
	over     chan struct{}
}

// errRefusedConnection means that the server has closed the connection.
var errRefusedConnection = errors.New("the server has closed the connection")

// dialRaw opens a connection on which the server may send window bytes to each stream until we ask for more. For the
// connection as a whole there is no such limit.
func dialRaw(ctx context.Context, addr string, window uint32) (*raw, error) {
	dialer := net.Dialer{LocalAddr: attackerAddress}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	out := bufio.NewWriterSize(conn, 64<<10)
	r := &raw{conn: conn, out: out, framer: http2.NewFramer(out, bufio.NewReaderSize(conn, 64<<10)), next: 1, over: make(chan struct{})}
	r.encoder = hpack.NewEncoder(&r.block)
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	_, err = io.WriteString(out, http2.ClientPreface)
	err = errors.Join(err,
		r.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}, http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		r.framer.WriteWindowUpdate(0, wireWindow), out.Flush())
	if err != nil {
		stop()
		conn.Close()
		return nil, err
	}
	go func() {
		defer close(r.over)
		defer stop()
		r.listen()
	}()
	return r, nil
}

// close closes the connection and waits for the goroutine that reads.
func (r *raw) close() {
	r.conn.Close()
	<-r.over
}

// listen reads until the connection ends.
func (r *raw) listen() {
	r.framer.SetReuseFrames()
	for {
		f, err := r.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.HeadersFrame:
			if f.StreamEnded() {
				r.answered.Add(1)
			}
		case *http2.RSTStreamFrame:
			r.reset.Add(1)
		case *http2.DataFrame:
			r.received.Add(int64(f.Header().Length))
		}
	}
}

// gone says whether the server has closed the connection.
func (r *raw) gone() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// open begins a request with headers besides those that each has. What it writes waits for flush.
func (r *raw) open(method string, more ...hpack.HeaderField) (stream uint32, err error) {
	r.block.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "bench"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		if err := r.encoder.WriteField(f); err != nil {
			return 0, err
		}
	}
	stream = r.next
	r.next += 2
	return stream, r.headers(stream, r.block.Bytes())
}

// headers writes a block of headers in as many frames as it takes.
func (r *raw) headers(stream uint32, block []byte) error {
	first := block[:min(len(block), wireFrame)]
	rest := block[len(first):]
	err := r.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: first, EndHeaders: len(rest) == 0})
	for len(rest) > 0 && err == nil {
		part := rest[:min(len(rest), wireFrame)]
		rest = rest[len(part):]
		err = r.framer.WriteContinuation(stream, len(rest) == 0, part)
	}
	return err
}

// ask begins a request and sends its one message.
func (r *raw) ask(method string, m proto.Message) (stream uint32, err error) {
	if stream, err = r.open(method); err != nil {
		return 0, err
	}
	return stream, r.message(stream, m, true)
}

// message sends a message of a stream, without regard to the windows of the server.
func (r *raw) message(stream uint32, m proto.Message, last bool) error {
	bytes := marshal(make([]byte, messagePrefix), m)
	binary.BigEndian.PutUint32(bytes[1:], uint32(len(bytes)-messagePrefix))
	return r.data(stream, bytes, last)
}

func (r *raw) data(stream uint32, bytes []byte, last bool) error {
	for {
		part := bytes[:min(len(bytes), wireFrame)]
		bytes = bytes[len(part):]
		if err := r.framer.WriteData(stream, last && len(bytes) == 0, part); err != nil || len(bytes) == 0 {
			return err
		}
	}
}

// flush sends what was written.
func (r *raw) flush() error {
	if err := r.out.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errRefusedConnection, err)
	}
	return nil
}
