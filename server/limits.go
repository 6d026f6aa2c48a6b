package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// reasonConnections is the metric label of refused connections.
const reasonConnections = "too_many_connections"

// overloadLogInterval is the shortest time between two warnings about refused connections.
const overloadLogInterval = time.Minute

// boundedListener accepts connections up to a limit, and closes one at once for each further one. A client whose connection is
// closed can then try another member.
type boundedListener struct {
	net.Listener
	refused func(net.Addr)
	open    *admission.Connections
	budget  *budget // nil if only the number of connections is bounded
}

// Accept implements [net.Listener].
func (b *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		leave, closed := b.open.Enter(conn)
		if closed != nil {
			b.refused(closed.RemoteAddr())
			closed.Close()
		}
		if closed != conn {
			return b.wrap(conn, leave), nil
		}
	}
}

// countedConn is a connection that is counted until it is closed.
type countedConn struct {
	net.Conn
	leave func()
	once  sync.Once
	addr  *clientAddr // nil if the connection has no account
}

func (b *boundedListener) wrap(conn net.Conn, leave func()) net.Conn {
	c := &countedConn{Conn: conn, leave: leave}
	if b.budget == nil {
		return c
	}
	c.addr = &clientAddr{conn.RemoteAddr(), b.budget.begin(c)}
	return &clientConn{countedConn: c, decided: time.Now().Add(handshakeLimit)}
}

// RemoteAddr implements [net.Conn].
func (c *countedConn) RemoteAddr() net.Addr {
	if c.addr != nil {
		return c.addr
	}
	return c.Conn.RemoteAddr()
}

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.leave()
		if c.addr != nil {
			c.addr.account.meter.close()
			c.addr.account.close()
		}
	})
	return c.Conn.Close()
}

// limits counts what is bounded for all clients together.
type limits struct {
	connections [2]*admission.Connections // of gRPC and of HTTP
	warned      atomic.Int64              // when the log last warned of a refused connection, in nanoseconds since 1970

	requests *admission.Requests
	streams  *admission.Requests // long streams
	places   *admission.Places
	watchers *admission.Watchers
}

func newLimits(cfg Config) *limits {
	return &limits{
		connections: [2]*admission.Connections{admission.NewConnections(cfg.MaxConnections), admission.NewConnections(cfg.MaxConnectionsHTTP)},

		requests: admission.NewRequests(cfg.MaxRequests),
		streams:  admission.NewRequests(int(max(1, cfg.MemoryLimit/bytesPerStream))),
		places:   admission.NewPlaces(cfg.MaxRequests),
		watchers: admission.NewWatchers(cfg.MaxWatchers),
	}
}

// register adds the connections to the metrics.
func (l *limits) register(registry *prometheus.Registry) {
	for i, listener := range []string{"grpc", "http"} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "leasekeeper_connections",
			Help:        "Connections of clients that are open.",
			ConstLabels: prometheus.Labels{"listener": listener},
		}, func() float64 { return float64(l.connections[i].Open()) }))
	}
}

// bound limits the connections of a listener. With a budget it also limits what each of them uses.
func (s *Server) bound(l net.Listener, open *admission.Connections, b *budget) *boundedListener {
	return &boundedListener{Listener: l, refused: s.connectionRefused, open: open, budget: b}
}

func (s *Server) connectionRefused(from net.Addr) {
	s.metrics.Refuse(reasonConnections)
	now, last := time.Now().UnixNano(), s.limits.warned.Load()
	if now-last >= int64(overloadLogInterval) && s.limits.warned.CompareAndSwap(last, now) {
		s.log.Warn("connections are refused: as many are open as --max-connections, the memory limit and the descriptors of this process allow",
			"limit", s.cfg.MaxConnections, "latest_from", from)
	}
}
