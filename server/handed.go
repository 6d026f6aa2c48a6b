package server

import (
	"net"
	"sync"
)

// handedListener is the listener of connections that another part of the server has accepted. Its methods are safe for
// concurrent use.
type handedListener struct {
	addr  net.Addr
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newHandedListener() *handedListener {
	return &handedListener{conns: make(chan net.Conn), over: make(chan struct{})}
}

// hand passes a connection to the accepting server. It closes the connection if that server has stopped.
func (h *handedListener) hand(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.over:
		conn.Close()
	}
}

// Accept implements [net.Listener].
func (h *handedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handedListener) Close() error {
	h.once.Do(func() { close(h.over) })
	return nil
}

// Addr implements [net.Listener].
func (h *handedListener) Addr() net.Addr { return h.addr }
