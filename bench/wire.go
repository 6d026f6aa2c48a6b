package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A generator that costs more than the servers it loads measures itself: on two cores the usual gRPC client
// takes more time for a request than any of them. So the rows of rates are driven by a wire, which is one
// connection, one goroutine and as little of HTTP/2 as gRPC needs. Every server gets the same frames.

const (
	// wireWindow is how much a server may send before the client allows more.
	wireWindow = 1<<31 - 1 - 65535
	wireBuffer = 64 << 10
	// messagePrefix is in front of each message of gRPC: a flag and its length.
	messagePrefix = 5
	// wireFrame is the most that every server takes in one frame.
	wireFrame = 16 << 10
)

// A load is what one wire asks again and again. All calls come from the wire's own goroutine.
type load struct {
	method  string
	token   string // of a user; "" for none
	stream  bool   // the method takes many messages in one request
	slots   int    // requests under way, or streams
	depth   int    // messages under way in each stream
	ask     func(slot int, buf []byte) []byte
	answer  func(slot int, message []byte) error
	counted func() // for each answer
}

// call is a slot's request that is under way.
type call struct {
	id      uint32
	slot    int
	room    int64  // how much the server takes of it before it says that it takes more
	unsent  []byte // what there was no room for
	partial []byte // of an answer
	answers int
	status  string
}

// wire is one connection that carries a load.
type wire struct {
	*load
	conn    net.Conn
	in      *bufio.Reader
	framer  *http2.Framer // reads from in and writes to out
	out     writeBuffer
	encode  *hpack.Encoder
	block   writeBuffer // what encode has written
	decode  *hpack.Decoder
	field   *call // whose header is being decoded
	calls   map[uint32]*call
	next    uint32 // id of the next request
	room    int64  // how much the server takes before it says that it takes more
	initial int64  // how much it takes of each new request
	message []byte
}

// writeBuffer collects writes until they are sent.
type writeBuffer struct{ bytes []byte }

func (b *writeBuffer) Write(p []byte) (int, error) {
	b.bytes = append(b.bytes, p...)
	return len(p), nil
}

// drive carries a load over a connection of its own until the context ends.
func drive(ctx context.Context, addr string, l *load) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	defer conn.Close()
	w := &wire{load: l, conn: conn, in: bufio.NewReaderSize(conn, wireBuffer), calls: make(map[uint32]*call),
		next: 1, room: 65535, initial: 65535}
	w.framer = http2.NewFramer(&w.out, w.in)
	w.framer.SetReuseFrames()
	w.encode = hpack.NewEncoder(&w.block)
	w.decode = hpack.NewDecoder(4096, w.header)
	if err := w.run(); ctx.Err() == nil {
		return err
	}
	return ctx.Err()
}

func (w *wire) run() error {
	w.out.bytes = append(w.out.bytes, http2.ClientPreface...)
	if err := errors.Join(
		w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: wireWindow},
			http2.Setting{ID: http2.SettingEnablePush, Val: 0}),
		w.framer.WriteWindowUpdate(0, wireWindow)); err != nil {
		return err
	}
	for slot := range w.slots {
		if err := w.begin(&call{slot: slot}); err != nil {
			return err
		}
	}
	for {
		if w.in.Buffered() == 0 {
			if _, err := w.conn.Write(w.out.bytes); err != nil {
				return err
			}
			w.out.bytes = w.out.bytes[:0]
		}
		f, err := w.framer.ReadFrame()
		if err != nil {
			return err
		}
		if err := w.frame(f); err != nil {
			return err
		}
	}
}

// begin sends a request.
func (w *wire) begin(c *call) error {
	id := w.next
	w.next += 2
	c.id, c.room, c.unsent = id, w.initial, c.unsent[:0]
	c.partial, c.answers, c.status = c.partial[:0], 0, ""
	w.calls[id] = c
	w.block.bytes = w.block.bytes[:0]
	fields := [...]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: w.method},
		{Name: ":authority", Value: "bench"}, {Name: "content-type", Value: "application/grpc"},
		{Name: "te", Value: "trailers"}, {Name: tokenKey, Value: w.token},
	}
	sent := fields[:]
	if w.token == "" {
		sent = fields[:len(fields)-1]
	}
	for _, f := range sent {
		if err := w.encode.WriteField(f); err != nil {
			return err
		}
	}
	err := w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: w.block.bytes, EndHeaders: true})
	if err != nil {
		return err
	}
	for range max(w.depth, 1) {
		if err := w.send(c); err != nil {
			return err
		}
	}
	return nil
}

// send sends a message; what there is no room for waits.
func (w *wire) send(c *call) error {
	w.message = append(w.message[:0], 0, 0, 0, 0, 0)
	w.message = w.ask(c.slot, w.message)
	binary.BigEndian.PutUint32(w.message[1:], uint32(len(w.message)-messagePrefix))
	if len(c.unsent) > 0 {
		c.unsent = append(c.unsent, w.message...)
		return nil
	}
	sent, err := w.write(c, w.message)
	c.unsent = append(c.unsent, w.message[sent:]...)
	return err
}

// write sends as much as there is room for.
func (w *wire) write(c *call, bytes []byte) (sent int, err error) {
	for sent < len(bytes) && err == nil {
		n := min(int64(len(bytes)-sent), wireFrame, w.room, c.room)
		if n <= 0 {
			break
		}
		w.room -= n
		c.room -= n
		part := bytes[sent : sent+int(n)]
		sent += len(part)
		err = w.framer.WriteData(c.id, !w.stream && sent == len(bytes), part)
	}
	return sent, err
}

// resume sends what waited.
func (w *wire) resume(c *call) error {
	sent, err := w.write(c, c.unsent)
	c.unsent = append(c.unsent[:0], c.unsent[sent:]...)
	return err
}

func (w *wire) frame(f http2.Frame) error {
	switch f := f.(type) {
	case *http2.DataFrame:
		return w.data(f)
	case *http2.HeadersFrame:
		return w.headers(f)
	case *http2.SettingsFrame:
		return w.settings(f)
	case *http2.PingFrame:
		if !f.IsAck() {
			return w.framer.WritePing(true, f.Data)
		}
	case *http2.WindowUpdateFrame:
		return w.widen(f)
	case *http2.RSTStreamFrame:
		return fmt.Errorf("the server ended a request with %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return fmt.Errorf("the server ended the connection with %v", f.ErrCode)
	}
	return nil
}

func (w *wire) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		more := int64(v) - w.initial
		w.initial = int64(v)
		for _, c := range w.calls {
			c.room += more
			if err := w.resume(c); err != nil {
				return err
			}
		}
	}
	return w.framer.WriteSettingsAck()
}

// widen sends what waited for room.
func (w *wire) widen(f *http2.WindowUpdateFrame) error {
	if f.StreamID != 0 {
		c := w.calls[f.StreamID]
		if c == nil {
			return nil // it is over
		}
		c.room += int64(f.Increment)
		return w.resume(c)
	}
	w.room += int64(f.Increment)
	for _, c := range w.calls {
		if err := w.resume(c); err != nil {
			return err
		}
	}
	return nil
}

// data takes a part of an answer.
func (w *wire) data(f *http2.DataFrame) error {
	c := w.calls[f.StreamID]
	if c == nil {
		return fmt.Errorf("data for the unknown request %d", f.StreamID)
	}
	c.partial = append(c.partial, f.Data()...)
	rest := c.partial
	for len(rest) >= messagePrefix {
		end := messagePrefix + int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < end {
			break
		}
		c.answers++
		if err := w.answer(c.slot, rest[messagePrefix:end]); err != nil {
			return err
		}
		rest = rest[end:]
		if w.stream {
			w.counted()
			if err := w.send(c); err != nil {
				return err
			}
		}
	}
	c.partial = append(c.partial[:0], rest...)
	return nil
}

// headers takes the beginning or the end of an answer.
func (w *wire) headers(f *http2.HeadersFrame) error {
	c := w.calls[f.StreamID]
	if c == nil || !f.HeadersEnded() {
		return fmt.Errorf("headers for the unknown request %d, or too many of them", f.StreamID)
	}
	w.field = c
	if _, err := w.decode.Write(f.HeaderBlockFragment()); err != nil {
		return err
	}
	if !f.StreamEnded() {
		return nil
	}
	if c.status != "0" {
		return fmt.Errorf("%s was answered with %s", w.method, c.status)
	}
	if w.stream || c.answers != 1 {
		return fmt.Errorf("%s ended after %d answers: %w", w.method, c.answers, io.ErrUnexpectedEOF)
	}
	delete(w.calls, f.StreamID)
	w.counted()
	return w.begin(c)
}

// header takes a header of an answer.
func (w *wire) header(f hpack.HeaderField) {
	switch f.Name {
	case "grpc-status":
		w.field.status = f.Value + w.field.status
	case "grpc-message":
		if f.Value != "" {
			w.field.status += " (" + f.Value + ")"
		}
	}
}
