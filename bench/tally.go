package main

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// tally stands between clients and a server, passes on all that either says, and counts what clients say.
// So it counts alike for every client library and every server.
type tally struct {
	listener net.Listener
	server   string
	messages atomic.Int64 // of gRPC, from clients
	bytes    atomic.Int64 // from clients, all that is on the wire

	work   sync.WaitGroup
	mu     sync.Mutex
	conns  []net.Conn
	closed bool
	err    error // the first thing that kept it from counting
}

func newTally(server string) (*tally, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	t := &tally{listener: l, server: server}
	t.work.Go(t.accept)
	return t, nil
}

func (t *tally) addr() string { return t.listener.Addr().String() }

// close ends all connections. It returns an error if not all was counted.
func (t *tally) close() error {
	t.mu.Lock()
	t.closed = true
	t.listener.Close()
	for _, c := range t.conns {
		c.Close()
	}
	t.mu.Unlock()
	t.work.Wait()
	return t.err
}

func (t *tally) accept() {
	for {
		client, err := t.listener.Accept()
		if err != nil {
			return // it is closed
		}
		server, err := net.Dial("tcp", t.server)
		if err != nil {
			client.Close()
			t.fail(err)
			continue
		}
		if !t.keep(client, server) {
			return
		}
		t.work.Go(func() {
			defer client.Close()
			io.Copy(client, server)
		})
		t.work.Go(func() {
			defer server.Close()
			t.fail(t.count(io.TeeReader(client, server)))
		})
	}
}

// keep remembers connections that are to be closed. It is false if they are closed at once.
func (t *tally) keep(conns ...net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.conns = append(t.conns, conns...)
		return true
	}
	for _, c := range conns {
		c.Close()
	}
	return false
}

// fail notes why something was not counted. That a connection is over is no reason.
func (t *tally) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !isReset(err) {
		t.err = err
	}
}

// count reads what a client says until it says no more.
func (t *tally) count(client io.Reader) error {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(client, preface); err != nil {
		return err
	}
	framer := http2.NewFramer(io.Discard, client)
	framer.SetReuseFrames()
	parts := make(map[uint32]*part)
	const frameHeader = 9
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			return err
		}
		t.bytes.Add(frameHeader + int64(f.Header().Length))
		id := f.Header().StreamID
		if data, ok := f.(*http2.DataFrame); ok {
			if parts[id] == nil {
				parts[id] = &part{}
			}
			t.messages.Add(parts[id].add(data.Data()))
		}
		if f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameRSTStream {
			delete(parts, id)
		}
	}
}

// part is what is known of a message that has begun.
type part struct {
	prefix []byte // as much of it as there is
	left   int    // bytes of the message after it
}

// add takes more of a stream, and returns how many messages that completed.
func (p *part) add(data []byte) (complete int64) {
	for {
		if missing := messagePrefix - len(p.prefix); missing > 0 {
			n := min(missing, len(data))
			p.prefix, data = append(p.prefix, data[:n]...), data[n:]
			if n < missing {
				return complete
			}
			p.left = int(binary.BigEndian.Uint32(p.prefix[1:]))
		}
		n := min(p.left, len(data))
		p.left, data = p.left-n, data[n:]
		if p.left > 0 {
			return complete
		}
		complete++
		p.prefix = p.prefix[:0]
	}
}
