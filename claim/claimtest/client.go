package claimtest

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Client is one process's connection to a [Memory]. It has every optional ability that package claim knows.
type Client struct {
	memory *Memory
	space  *space
	once   sync.Once
	closed chan struct{}
}

var (
	_ claim.Store    = (*Client)(nil)
	_ claim.Batcher  = (*Client)(nil)
	_ claim.Gatherer = (*Client)(nil)
	_ claim.Notifier = (*Client)(nil)
	_ claim.Judge    = (*Client)(nil)
	_ claim.Bounded  = (*Client)(nil)
	_ claim.Local    = (*Client)(nil)
	_ claim.Clocks   = (*Client)(nil)
)

// Scheme returns "memory".
func (c *Client) Scheme() string { return "memory" }

// Get implements [claim.Store].
func (c *Client) Get(ctx context.Context, name string) (claim.Found, error) {
	unlock, err := c.begin(ctx, "get")
	if err != nil {
		return claim.Found{}, err
	}
	defer unlock()
	f := c.memory.found(c.space, name)
	if f.Err != nil {
		return claim.Found{}, f.Err
	}
	return f, nil
}

// Swap implements [claim.Store].
func (c *Client) Swap(ctx context.Context, s claim.Swap) (bool, error) {
	unlock, err := c.begin(ctx, "swap")
	if err != nil {
		return false, err
	}
	defer unlock()
	return c.memory.write(c.space, s)
}

// SwapAll implements [claim.Batcher].
func (c *Client) SwapAll(ctx context.Context, swaps []claim.Swap) ([]bool, error) {
	unlock, err := c.begin(ctx, "swap")
	if err != nil {
		return nil, err
	}
	defer unlock()
	done := make([]bool, len(swaps))
	for i, s := range swaps {
		if done[i], err = c.memory.write(c.space, s); err != nil {
			if i > 0 {
				err = fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
			}
			return nil, err
		}
	}
	return done, nil
}

// GetAll implements [claim.Gatherer].
func (c *Client) GetAll(ctx context.Context, names []string) ([]claim.Found, error) {
	unlock, err := c.begin(ctx, "get")
	if err != nil {
		return nil, err
	}
	defer unlock()
	all := make([]claim.Found, len(names))
	for i, name := range names {
		all[i] = c.memory.found(c.space, name)
	}
	return all, nil
}

// List implements [claim.Store].
func (c *Client) List(ctx context.Context, prefix, after string, limit int) ([]claim.Found, error) {
	unlock, err := c.begin(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []claim.Found
	for _, name := range c.space.names(prefix, after, limit) {
		all = append(all, c.memory.found(c.space, name))
	}
	return all, nil
}

// Observe implements [claim.Store].
func (c *Client) Observe(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	unlock, err := c.begin(ctx, "observe")
	if err != nil {
		return clock.Instant{}, err
	}
	defer unlock()
	by := observer{name, d}
	if known, ok := c.space.observations[by]; ok && known.op == op {
		return known.at, nil
	}
	c.space.observations[by] = observation{op, at}
	return at, nil
}

// Sweep implements [claim.Store].
func (c *Client) Sweep(ctx context.Context, prefix, after, through string) error {
	unlock, err := c.begin(ctx, "sweep")
	if err != nil {
		return err
	}
	defer unlock()
	maps.DeleteFunc(c.space.observations, func(by observer, s observation) bool {
		r := c.space.records[by.name]
		return strings.HasPrefix(by.name, prefix) && by.name > after && (through == "" || by.name <= through) &&
			(r == nil || r.record.Op != s.op)
	})
	return nil
}

// RaiseFloor implements [claim.Store].
func (c *Client) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	unlock, err := c.begin(ctx, "raise the floor")
	if err != nil {
		return 0, err
	}
	defer unlock()
	c.space.floor = max(c.space.floor, t)
	return c.space.floor, nil
}

// Remove implements [claim.Store].
func (c *Client) Remove(ctx context.Context, name string, old claim.Op) (bool, error) {
	unlock, err := c.begin(ctx, "remove")
	if err != nil {
		return false, err
	}
	defer unlock()
	k := c.space.records[name]
	if k == nil || k.record.Op != old {
		return false, nil
	}
	c.space.deleteRecord(name)
	return true, nil
}

// Close implements [claim.Store].
func (c *Client) Close(context.Context) error {
	c.once.Do(func() {
		c.memory.mu.Lock()
		close(c.closed)
		c.memory.mu.Unlock()
	})
	return nil
}

// Judges implements [claim.Judge].
func (c *Client) Judges() bool { return c.space.judges }

// Bounds implements [claim.Bounded].
func (c *Client) Bounds() bool { return true }

// Domain implements [claim.Local].
func (c *Client) Domain(d clock.Domain) clock.Domain { return d }

// Gone implements [claim.Local].
func (c *Client) Gone(d clock.Domain) bool { return c.memory.gone(d) }

// Acknowledge implements [claim.Clocks].
func (c *Client) Acknowledge(ctx context.Context, d clock.Domain, at clock.Instant) error {
	unlock, err := c.begin(ctx, "acknowledge")
	if err != nil {
		return err
	}
	defer unlock()
	known, ok := c.space.clocks[d]
	if ok {
		at = clock.Instant{Raw: max(known.Raw, at.Raw), Boot: max(known.Boot, at.Boot)}
	}
	c.space.clocks[d] = at
	return nil
}

// Acknowledged implements [claim.Clocks].
func (c *Client) Acknowledged(ctx context.Context, d clock.Domain) (clock.Instant, bool, error) {
	unlock, err := c.begin(ctx, "acknowledged")
	if err != nil {
		return clock.Instant{}, false, err
	}
	defer unlock()
	at, ok := c.space.clocks[d]
	return at, ok, nil
}
