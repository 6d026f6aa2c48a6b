package keyspace

import (
	"context"
	"sync"
)

// Turns let so many goroutines at a time do bulk work, a slice of it each, and has those who wait take turns by their
// client: a client with a thousand streams gets no more of it than one with a single stream.
type Turns struct {
	mu      sync.Mutex
	free    int
	clients []*client          // that have somebody waiting, in the order of their turns
	byName  map[string]*client // the same
}

// client is who waits on behalf of one client, in order. It is in turns.clients as long as somebody does.
type client struct {
	name    string
	waiting []chan struct{}
}

// NewTurns returns turns of which so many are taken at a time.
func NewTurns(atOnce int) *Turns {
	return &Turns{free: max(atOnce, 1), byName: make(map[string]*client)}
}

// take waits for a turn. The caller must give it back.
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
		t.release() // it came at the same time
	}
	return context.Cause(ctx)
}

// withdraw takes one back that waits. It is false if that one has its turn.
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

// remove is for a client for which nobody waits anymore. The lock is held.
func (t *Turns) remove(c *client) {
	delete(t.byName, c.name)
	for i, other := range t.clients {
		if other == c {
			t.clients = append(t.clients[:i], t.clients[i+1:]...)
			return
		}
	}
}

// What a turn is good for before others get theirs: a few milliseconds of reading. A turn counts bytes and keys, and reads
// no clock.
const (
	turnBytes = 1 << 20
	turnKey   = 256     // what a key counts besides its value, also one that is passed over
	turnGet   = 2 << 10 // what a single key counts that is looked up
)

// turnsKey is where a context has what its caller takes turns by.
type turnsKey struct{}

// turnHolder is who reads with a context. One goroutine uses it.
type turnHolder struct {
	turns  *Turns
	client string
	held   bool // it has a turn
	left   int  // bytes that it may read in that
}

// InTurn has what is read with the context, where that is bulk work, wait for a turn of the client. One goroutine uses
// the context for that.
func InTurn(ctx context.Context, t *Turns, client string) context.Context {
	return context.WithValue(ctx, turnsKey{}, &turnHolder{turns: t, client: client})
}

// TakeTurn waits for the turn of the client that InTurn has named, if it has. The caller must give it back, also after a
// read that has failed.
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

// inTurn returns the caller that has a turn, nil if a context has none.
func turnOf(ctx context.Context) *turnHolder {
	if c, ok := ctx.Value(turnsKey{}).(*turnHolder); ok && c.held {
		return c
	}
	return nil
}

// spend counts what was read. When the turn is used up the others get theirs first.
func (c *turnHolder) spend(ctx context.Context, bytes int) error {
	if c.left -= bytes; c.left > 0 {
		return nil
	}
	c.end()
	return c.begin(ctx)
}

// give gives a turn back, to the first that waits of the client whose turn it is. That client is last then.
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
