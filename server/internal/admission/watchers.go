package admission

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// Watchers bounds the watchers on all streams of one connection. Its methods are safe for concurrent use.
type Watchers struct {
	limit int64
	open  atomic.Int64 // on all connections
	// connections counts the watchers of each connection, by the client's address and port.
	connections Counted[string, atomic.Int64]
}

// NewWatchers allows most watchers on each connection.
func NewWatchers(most int) *Watchers { return &Watchers{limit: int64(most)} }

// Open returns the number of watchers on all connections.
func (w *Watchers) Open() int64 { return w.open.Load() }

// Connections returns the number of connections that have watch streams.
func (w *Watchers) Connections() int { return w.connections.Len() }

// ConnectionWatchers counts the watchers of one connection.
type ConnectionWatchers struct {
	all   *Watchers
	count *atomic.Int64
}

// Join returns the counter for the connection of a stream. The caller must call leave when the stream ends.
func (w *Watchers) Join(ctx context.Context) (c *ConnectionWatchers, leave func()) {
	var from string
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	count, leave := w.connections.Join(from)
	return &ConnectionWatchers{w, count}, leave
}

// Admit counts one more watcher, and reports false at the bound.
func (c *ConnectionWatchers) Admit() bool {
	if c.count.Add(1) > c.all.limit {
		c.count.Add(-1)
		return false
	}
	c.all.open.Add(1)
	return true
}

// Discharge removes n watchers from the count.
func (c *ConnectionWatchers) Discharge(n int64) {
	c.count.Add(-n)
	c.all.open.Add(-n)
}
