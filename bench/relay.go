package main

import (
	"errors"
	"io"
	"net"
	"sync"
)

// relay forwards all bytes between two sides.
type relay struct {
	listener net.Listener
	server   string
	// pass forwards the bytes of the client or the server to the other until the end.
	fromClient, fromServer func(to io.Writer, from io.ReadCloser) error

	work   sync.WaitGroup
	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	err    error // the first thing that kept it from passing something on
}

// newRelay listens on a free port of its own. Both functions pass on what one side says until it says no more.
func newRelay(server string, fromClient, fromServer func(to io.Writer, from io.ReadCloser) error) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &relay{listener: l, server: server, fromClient: fromClient, fromServer: fromServer, conns: make(map[net.Conn]bool)}
	r.work.Go(r.accept)
	return r, nil
}

func (r *relay) addr() string { return r.listener.Addr().String() }

// close ends all connections. It returns an error if not all was passed on.
func (r *relay) close() error {
	r.mu.Lock()
	r.closed = true
	r.listener.Close()
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
	return r.err
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // it is closed
		}
		server, err := net.Dial("tcp", r.server)
		if err != nil {
			client.Close()
			r.fail(err)
			continue
		}
		if !r.keep(client, server) {
			return
		}
		r.work.Go(func() { r.carry(client, server, r.fromServer) })
		r.work.Go(func() { r.carry(server, client, r.fromClient) })
	}
}

// carry forwards the bytes of one side, and closes the other at the end.
func (r *relay) carry(to, from net.Conn, pass func(to io.Writer, from io.ReadCloser) error) {
	r.fail(pass(to, from))
	to.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, to)
}

// keep remembers connections that are to be closed. It is false if they are closed at once.
func (r *relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.closed {
			c.Close()
		} else {
			r.conns[c] = true
		}
	}
	return !r.closed
}

// fail notes why something was not passed on. That a connection is over is no reason.
func (r *relay) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil && err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !isReset(err) {
		r.err = err
	}
}
