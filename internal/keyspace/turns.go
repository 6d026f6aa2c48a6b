package keyspace

import (
	"context"
	"sync"
)

// Turns bounds the number of goroutines that do bulk work at a time. Waiting goroutines take turns by their client: a
// client with a thousand streams gets no more turns than a client with one.
type Turns struct {
	mu      sync.Mutex
	free    int
	clients []*client          // clients with waiting goroutines, in the order of their turns
	byName  map[string]*client // the same clients by name
}

// client is the queue of one client's waiting goroutines. It is in Turns.clients while the queue is not empty.
type client struct {
	name    string
	waiting []chan struct{}
}

// NewTurns returns Turns of which atOnce can be held at a time.
func NewTurns(atOnce int) *Turns {
	return &Turns{free: max(atOnce, 1), byName: make(map[string]*client)}
}

// acquire waits for a turn. The caller must release it.
func (t *Turns) acquire(ctx context.Context, name string) error {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return nil
	}
	c := t.byName[name]
	if c == nil {
		c = &client{name: name}
		t.byName[name] = c
		t.clients = append(t.clients, c)
	}
	own := make(chan struct{})
	c.waiting = append(c.waiting, own)
	t.mu.Unlock()
	select {
	case <-own:
		return nil
	case <-ctx.Done():
	}
	if !t.withdraw(name, own) {
		t.release() // the turn came just as ctx ended
	}
	return context.Cause(ctx)
}

// withdraw removes a waiting goroutine from its queue. It returns false if the goroutine has been given a turn.
func (t *Turns) withdraw(name string, own chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byName[name]
	if c == nil {
		return false
	}
	for i, other := range c.waiting {
		if other != own {
			continue
		}
		c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
		if len(c.waiting) == 0 {
			t.remove(c)
		}
		return true
	}
	return false
}

// remove removes a client without waiting goroutines. t.mu is held.
func (t *Turns) remove(c *client) {
	delete(t.byName, c.name)
	for i, other := range t.clients {
		if other == c {
			t.clients = append(t.clients[:i], t.clients[i+1:]...)
			return
		}
	}
}

// A turn allows a few milliseconds of reading before the next client's turn. It counts bytes and keys, and reads no
// clock.
const (
	turnBytes = 1 << 20
	turnKey   = 256     // cost in bytes of each key, also of one that is skipped, besides the key itself and its value
	turnGet   = 2 << 10 // cost in bytes of looking up a single key, besides the key itself and its value
)

// turnsKey is the context key of a *turnHolder.
type turnsKey struct{}

// turnHolder is a reader that takes turns. One goroutine uses it.
type turnHolder struct {
	turns  *Turns
	client string
	held   bool // it has a turn
	left   int  // bytes that it may still read in this turn
}

// InTurn returns a context under which bulk reads take turns as the named client. Only one goroutine may read under
// it.
func InTurn(ctx context.Context, t *Turns, client string) context.Context {
	return context.WithValue(ctx, turnsKey{}, &turnHolder{turns: t, client: client})
}

// TakeTurn waits for a turn of the client that InTurn set. Without InTurn it returns at once. The caller must call
// end, also after a failed read.
func TakeTurn(ctx context.Context) (end func(), err error) {
	c, ok := ctx.Value(turnsKey{}).(*turnHolder)
	if !ok {
		return func() {}, nil
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	return c.end, nil
}

func (c *turnHolder) begin(ctx context.Context) error {
	if err := c.turns.acquire(ctx, c.client); err != nil {
		return err
	}
	c.held, c.left = true, turnBytes
	return nil
}

func (c *turnHolder) end() {
	if c.held {
		c.held = false
		c.turns.release()
	}
}

// turnOf returns the context's reader if it has a turn, and nil otherwise.
func turnOf(ctx context.Context) *turnHolder {
	if c, ok := ctx.Value(turnsKey{}).(*turnHolder); ok && c.held {
		return c
	}
	return nil
}

// spend counts bytes that were read. When the turn is used up, it waits for the next one. A read that takes no turns has a nil
// holder, and spends nothing.
func (c *turnHolder) spend(ctx context.Context, bytes int) error {
	if c == nil {
		return nil
	}
	if c.left -= bytes; c.left > 0 {
		return nil
	}
	c.end()
	return c.begin(ctx)
}

// release gives the turn to the first goroutine of the next client. That client then moves to the end of the list.
func (t *Turns) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.clients) == 0 {
		t.free++
		return
	}
	c := t.clients[0]
	t.clients = append(t.clients[:0], t.clients[1:]...)
	next := c.waiting[0]
	c.waiting[0] = nil
	if c.waiting = c.waiting[1:]; len(c.waiting) > 0 {
		t.clients = append(t.clients, c)
	} else {
		delete(t.byName, c.name)
	}
	close(next)
}
