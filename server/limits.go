package server

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// Reasons under which is counted what is turned away without being a request.
const (
	reasonConnections = "too_many_connections"
	reasonWatchers    = "too_many_watchers"
)

// overloadLogInterval is how often the log tells that connections are turned away.
const overloadLogInterval = time.Minute

// bounded hands out connections until there are as many as allowed, and closes those beyond at once: a
// client that is told so soon can try another member, and one that is left waiting cannot.
type bounded struct {
	net.Listener
	limit   int64
	refused func(net.Addr)
	open    *atomic.Int64
	budget  *budget // nil if nothing but the number of connections is bounded
	metered bool    // the connections carry frames that are not encrypted
}

// Accept implements [net.Listener].
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.limit {
			return b.counted(conn), nil
		}
		b.open.Add(-1)
		b.refused(conn.RemoteAddr())
		conn.Close()
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	open *atomic.Int64
	once sync.Once
	addr *clientAddr // nil if nothing is counted besides
}

func (b *bounded) counted(conn net.Conn) net.Conn {
	c := &counted{Conn: conn, open: b.open}
	if b.budget == nil {
		return c
	}
	c.addr = &clientAddr{conn.RemoteAddr(), b.budget.begin(c)}
	if b.metered {
		return newMetered(c)
	}
	return c
}

// RemoteAddr implements [net.Conn].
func (c *counted) RemoteAddr() net.Addr {
	if c.addr != nil {
		return c.addr
	}
	return c.Conn.RemoteAddr()
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.once.Do(func() {
		c.open.Add(-1)
		if c.addr != nil {
			c.addr.account.meter.close()
			c.addr.account.close()
		}
	})
	return c.Conn.Close()
}

// limits is what is under way, as far as it is bounded for all clients together.
type limits struct {
	connections [2]atomic.Int64 // of gRPC and of HTTP
	requests    atomic.Int64    // with one answer
	waiting     atomic.Int64    // the same for those that wait for others
	places      places          // that they take, and claims that were left waiting
	warned      atomic.Int64    // when the log last told of a connection turned away, in nanoseconds since 1970

	mu       sync.Mutex
	watchers map[string]*watchersOf // by the address of the client's end of the connection
}

// register has the connections among the metrics.
func (l *limits) register(registry *prometheus.Registry) {
	for i, listener := range []string{"grpc", "http"} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "leasekeeper_connections",
			Help:        "Connections of clients that are open.",
			ConstLabels: prometheus.Labels{"listener": listener},
		}, func() float64 { return float64(l.connections[i].Load()) }))
	}
}

// bound limits the connections of a listener.
func (s *Server) bound(l net.Listener, limit int, open *atomic.Int64) *bounded {
	return &bounded{Listener: l, limit: int64(limit), refused: s.turnedAway, open: open}
}

// boundClients limits the connections of gRPC's listener, and what each of them uses.
func (s *Server) boundClients(l net.Listener) net.Listener {
	b := s.bound(l, s.cfg.MaxConnections, &s.limits.connections[0])
	b.budget, b.metered = s.budget, s.certs == nil
	return b
}

func (s *Server) turnedAway(from net.Addr) {
	s.metrics.refuse(reasonConnections)
	now, last := time.Now().UnixNano(), s.limits.warned.Load()
	if now-last >= int64(overloadLogInterval) && s.limits.warned.CompareAndSwap(last, now) {
		s.log.Warn("connections are turned away: there are as many as --max-connections, the memory limit and the descriptors of this process allow",
			"limit", s.cfg.MaxConnections, "one of them from", from)
	}
}

// begin takes a request on, unless so many are under way that its client had better try again later.
func (s *Server) begin() (end func(), err error) {
	if s.limits.requests.Add(1) > int64(s.cfg.MaxRequests) {
		s.limits.requests.Add(-1)
		return nil, replica.ErrTooManyRequests
	}
	return func() { s.limits.requests.Add(-1) }, nil
}

// watchersOf counts the watchers on all streams of one connection.
type watchersOf struct {
	count   atomic.Int64
	streams int // that use this; guarded by limits.mu
}

// join returns the count for the connection that a stream came on. The stream leaves when it ends.
func (l *limits) join(ctx context.Context) (w *watchersOf, leave func()) {
	var from string
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if w = l.watchers[from]; w == nil {
		w = new(watchersOf)
		l.watchers[from] = w
	}
	w.streams++
	return w, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if w.streams--; w.streams == 0 {
			delete(l.watchers, from)
		}
	}
}

// admit takes one watcher on if there is room for it.
func (w *watchersOf) admit(limit int) bool {
	if w.count.Add(1) > int64(limit) {
		w.count.Add(-1)
		return false
	}
	return true
}
