package admission

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/peer"
)

// Watchers bounds the watchers on all streams of one connection. Its methods are safe for concurrent use.
type Watchers struct {
	limit int64
	open  atomic.Int64 // on all connections
	// connections counts the watchers of each connection, by the client's address and port.
	connections Counted[string, atomic.Int64]
	// users counts the watchers of each user.
	users Counted[string, atomic.Int64]
}

// NewWatchers allows most watchers on each connection.
func NewWatchers(most int) *Watchers { return &Watchers{limit: int64(most)} }

// Open returns the number of watchers on all connections.
func (w *Watchers) Open() int64 { return w.open.Load() }

// Connections returns the number of connections that have watch streams.
func (w *Watchers) Connections() int { return w.connections.Len() }

// ConnectionWatchers counts the watchers of one connection, and those of one stream for its user. Its methods are safe for
// concurrent use.
type ConnectionWatchers struct {
	all   *Watchers
	count *atomic.Int64 // of the connection

	mu     sync.Mutex
	open   int64         // on this stream
	ofUser *atomic.Int64 // open is part of it; nil if the user of the stream is not known
	leave  func()        // ends the use of ofUser
}

// Join returns the counter for the connection of a stream. The caller must call leave when the stream ends.
func (w *Watchers) Join(ctx context.Context) (c *ConnectionWatchers, leave func()) {
	var from string
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	count, disconnect := w.connections.Join(from)
	c = &ConnectionWatchers{all: w, count: count}
	return c, func() {
		disconnect()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.ofUser != nil {
			c.ofUser.Add(-c.open)
			c.leave()
			c.ofUser = nil
		}
	}
}

// Belong notes the user of the stream, and returns how many watchers the user has on all streams. The user of a stream is that
// of the first call.
func (c *ConnectionWatchers) Belong(user string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ofUser == nil {
		c.ofUser, c.leave = c.all.users.Join(user)
		c.ofUser.Add(c.open)
	}
	return c.ofUser.Load()
}

// add changes the number of watchers on the stream.
func (c *ConnectionWatchers) add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += n
	if c.ofUser != nil {
		c.ofUser.Add(n)
	}
}

// Admit counts one more watcher, and reports false at the bound.
func (c *ConnectionWatchers) Admit() bool {
	if c.count.Add(1) > c.all.limit {
		c.count.Add(-1)
		return false
	}
	c.all.open.Add(1)
	c.add(1)
	return true
}

// Discharge removes n watchers from the count.
func (c *ConnectionWatchers) Discharge(n int64) {
	c.count.Add(-n)
	c.all.open.Add(-n)
	c.add(-n)
}
