package demo

import (
	"context"
	"net"
	"sync"
	"time"
)

// mostConnections bounds the connections of one link.
const mostConnections = 64

// dialLimit bounds how long a link waits for a member to accept a connection.
const dialLimit = 2 * time.Second

// link is the network between one worker and the members: a proxy for each member. It is safe for concurrent use. close
// frees it.
type link struct {
	listeners []net.Listener
	running   sync.WaitGroup // of accept and carry

	mu      sync.Mutex
	open    chan struct{}     // closed while the link forwards; replaced by cut
	conns   map[*carried]bool // the connections
	stopped bool              // set by close
}

// carried is a connection of a worker through a link.
type carried struct {
	client net.Conn
	server net.Conn      // nil until it is connected; the link's lock guards it
	stale  chan struct{} // closed when the connection must end
}

// newLink returns a link to the members with these addresses. Its own addresses are in the same order.
func newLink(ctx context.Context, members []string) (*link, error) {
	l := &link{open: make(chan struct{}), conns: make(map[*carried]bool)}
	close(l.open)
	for _, member := range members {
		var config net.ListenConfig
		listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			l.close()
			return nil, err
		}
		l.listeners = append(l.listeners, listener)
		l.running.Go(func() { l.accept(listener, member) })
	}
	return l, nil
}

// addresses returns the addresses at which the worker reaches the members.
func (l *link) addresses() (all []string) {
	for _, listener := range l.listeners {
		all = append(all, listener.Addr().String())
	}
	return all
}

// cut makes the link stop forwarding. Connections stay open, as if the network dropped all packets.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

// mend makes the link forward again. It ends the connections that were open, because their peers may have given up. The
// link must be cut.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endAll()
	close(l.open)
}

// endAll ends all connections. The link is locked.
func (l *link) endAll() {
	for c := range l.conns {
		l.end(c)
	}
}

// end ends a connection, unless it has ended. The link is locked.
func (l *link) end(c *carried) {
	if !l.conns[c] {
		return
	}
	delete(l.conns, c)
	close(c.stale)
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
}

// close ends all connections and waits for the goroutines of the link.
func (l *link) close() {
	for _, listener := range l.listeners {
		listener.Close()
	}
	l.mu.Lock()
	l.stopped = true
	l.endAll()
	l.mu.Unlock()
	l.running.Wait()
}

// accept carries the connections of one listener until it is closed.
func (l *link) accept(listener net.Listener, member string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		c := &carried{client: conn, stale: make(chan struct{})}
		l.mu.Lock()
		refused := l.stopped || len(l.conns) >= mostConnections
		if !refused {
			l.conns[c] = true
			l.running.Go(func() { l.carry(c, member) })
		}
		l.mu.Unlock()
		if refused {
			conn.Close()
		}
	}
}

// carry forwards both directions of a connection until it ends.
func (l *link) carry(c *carried, member string) {
	defer l.forget(c)
	if !l.passes(c) {
		return
	}
	server, err := net.DialTimeout("tcp", member, dialLimit)
	if err != nil {
		return // the member is down: the worker's connection ends
	}
	defer server.Close()
	l.mu.Lock()
	c.server = server
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.forward(c, c.client, server) })
	both.Go(func() { l.forward(c, server, c.client) })
	both.Wait()
}

// forward copies one direction while the link is open. Then it ends the connection, and so the other direction.
func (l *link) forward(c *carried, from, to net.Conn) {
	defer l.forget(c)
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && (!l.passes(c) || !wholly(to, buffer[:n])) || err != nil {
			return
		}
	}
}

// passes waits until the link is open. It returns false if the connection ends first.
func (l *link) passes(c *carried) bool {
	l.mu.Lock()
	open := l.open
	l.mu.Unlock()
	select {
	case <-c.stale:
		return false
	default:
	}
	select {
	case <-open:
		return true
	case <-c.stale:
		return false
	}
}

// forget ends a connection.
func (l *link) forget(c *carried) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(c)
}

// wholly writes data, and reports whether all of it was written.
func wholly(to net.Conn, data []byte) bool {
	_, err := to.Write(data)
	return err == nil
}
