package opening

import (
	"net"
	"sync"
)

// Handed is the listener of connections that another part of the server has accepted. Its methods are safe for
// concurrent use.
type Handed struct {
	// Address is what Addr returns. It is set before the listener is served.
	Address net.Addr

	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

// NewHanded returns a listener without connections. The caller closes it.
func NewHanded() *Handed {
	return &Handed{conns: make(chan net.Conn), over: make(chan struct{})}
}

// Hand passes a connection to the accepting server. It closes the connection if that server has stopped.
func (h *Handed) Hand(conn net.Conn) {
	select {
	case h.conns <- conn:
	case <-h.over:
		conn.Close()
	}
}

// Accept implements [net.Listener].
func (h *Handed) Accept() (net.Conn, error) {
	select {
	case conn := <-h.conns:
		return conn, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *Handed) Close() error {
	h.once.Do(func() { close(h.over) })
	return nil
}

// Addr implements [net.Listener].
func (h *Handed) Addr() net.Addr { return h.Address }
