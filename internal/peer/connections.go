package peer

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
)

// warnInterval is the shortest time between two warnings about closed connections.
const warnInterval = time.Minute

// boundedListener accepts connections up to a limit. A connection is unproven until the transport admits a call on it. At
// the limit, a new connection replaces an unproven one: the oldest of the source that has most of them. So connections that
// send nothing keep no member out, and a source that floods the port closes its own connections first. Connections of
// members are never replaced. If there is no other, the new connection is closed.
type boundedListener struct {
	net.Listener
	limit int
	log   *slog.Logger

	mu       sync.Mutex
	unproven []*acceptedConn // in the order in which they were accepted
	proven   int             // the number of connections of members
	warned   time.Time       // when the log last warned of a closed connection
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &acceptedConn{Conn: raw, l: l, source: sourceOf(raw.RemoteAddr())}
		refused := l.enter(conn)
		if refused != nil {
			refused.Close()
		}
		if refused != conn {
			return conn, nil
		}
	}
}

// enter adds a connection. It returns the connection that must be closed for it, which may be the new one itself; nil if
// there is room.
func (l *boundedListener) enter(conn *acceptedConn) (refused *acceptedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.unproven)+l.proven >= l.limit {
		refused = conn
		if len(l.unproven) > 0 {
			refused = l.replaceable()
		}
		l.warn(refused)
	}
	if refused == conn {
		return conn
	}
	if refused != nil {
		l.remove(refused)
	}
	l.unproven = append(l.unproven, conn)
	conn.state = connUnproven
	return refused
}

// replaceable returns the oldest unproven connection of the source that has most of them. There is at least one. The caller
// holds mu.
func (l *boundedListener) replaceable() *acceptedConn {
	count := make(map[string]int)
	most := 0
	for _, conn := range l.unproven {
		count[conn.source]++
		most = max(most, count[conn.source])
	}
	return l.unproven[slices.IndexFunc(l.unproven, func(conn *acceptedConn) bool { return count[conn.source] == most })]
}

// remove forgets a connection. The caller holds mu.
func (l *boundedListener) remove(conn *acceptedConn) {
	switch conn.state {
	case connUnproven:
		i := slices.Index(l.unproven, conn)
		l.unproven = slices.Delete(l.unproven, i, i+1)
	case connProven:
		l.proven--
	}
	conn.state = connGone
}

// warn logs that a connection is closed, at most once in each warnInterval. The caller holds mu.
func (l *boundedListener) warn(refused *acceptedConn) {
	now := time.Now()
	if !l.warned.IsZero() && now.Sub(l.warned) < warnInterval {
		return
	}
	l.warned = now
	l.log.Warn("connections to the port for members are closed, because too many are open: let only members reach this port, with a firewall",
		"limit", l.limit, "of_members", l.proven, "latest_closed", refused.Conn.RemoteAddr().String())
}

// The states of an acceptedConn.
const (
	connGone     = iota // closed, or not counted yet
	connUnproven        // no call on it was admitted
	connProven          // of a member
)

// acceptedConn is an accepted connection that the listener counts until it is closed.
type acceptedConn struct {
	net.Conn
	l      *boundedListener
	source string
	state  int         // guarded by l.mu
	marked atomic.Bool // prove was called
}

// acceptedAddr is the address of the other side of a connection. A call finds its connection by it.
type acceptedAddr struct {
	net.Addr
	conn *acceptedConn
}

// RemoteAddr implements [net.Conn].
func (c *acceptedConn) RemoteAddr() net.Addr { return acceptedAddr{c.Conn.RemoteAddr(), c} }

// Close implements [net.Conn].
func (c *acceptedConn) Close() error {
	c.l.mu.Lock()
	c.l.remove(c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// prove marks the connection as one of a member.
func (c *acceptedConn) prove() {
	if c.marked.Swap(true) {
		return
	}
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	if c.state == connUnproven {
		c.l.remove(c)
		c.l.proven++
		c.state = connProven
	}
}

// proveConnection marks the connection of an admitted call as one of a member.
func proveConnection(ctx context.Context) {
	if p, ok := peer.FromContext(ctx); ok {
		if addr, ok := p.Addr.(acceptedAddr); ok {
			addr.conn.prove()
		}
	}
}

// sourceOf returns what connections of one source have in common: the address without its port. Of an IPv6 address it omits
// the lower half, which a machine chooses itself.
func sourceOf(addr net.Addr) string {
	at, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := at.Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLoopback() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}
