package admission

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// Watchers bounds the watchers on all streams of one connection.
type Watchers struct {
	most int64
	open atomic.Int64 // on all connections
	// connections has the watchers of each connection by the address of its client's end.
	connections Counted[string, atomic.Int64]
}

// NewWatchers allows so many watchers for each connection.
func NewWatchers(most int) *Watchers { return &Watchers{most: int64(most)} }

// Open returns how many watchers there are on all connections.
func (w *Watchers) Open() int64 { return w.open.Load() }

// Connections returns how many connections have streams of watchers.
func (w *Watchers) Connections() int { return w.connections.Len() }

// ConnectionWatchers counts the watchers of one connection.
type ConnectionWatchers struct {
	all   *Watchers
	count *atomic.Int64
}

// Join returns the count for the connection that a stream came on. The caller must call leave when the stream ends.
func (w *Watchers) Join(ctx context.Context) (c *ConnectionWatchers, leave func()) {
	var from string
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	count, leave := w.connections.Join(from)
	return &ConnectionWatchers{w, count}, leave
}

// Admit counts one more watcher if there is room for it.
func (c *ConnectionWatchers) Admit() bool {
	if c.count.Add(1) > c.all.most {
		c.count.Add(-1)
		return false
	}
	c.all.open.Add(1)
	return true
}

// Discharge counts n watchers less.
func (c *ConnectionWatchers) Discharge(n int64) {
	c.count.Add(-n)
	c.all.open.Add(-n)
}
