package claimtest

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var (
	_ claim.Store    = (*Network)(nil)
	_ claim.Batcher  = (*Network)(nil)
	_ claim.Gatherer = (*Network)(nil)
	_ claim.Notifier = (*Network)(nil)
	_ claim.Judge    = (*Network)(nil)
	_ claim.Bounded  = (*Network)(nil)
	_ claim.Local    = (*Network)(nil)
	_ claim.Clocks   = (*Network)(nil)
	_ claim.Marker   = (*Network)(nil)
)

// staleKey marks a context whose reads are answered with an earlier state.
type staleKey struct{}

// remember keeps the answer for a name, and returns the one to give: that, or an older one.
func (n *Network) remember(ctx context.Context, f claim.Found) claim.Found {
	n.mu.Lock()
	defer n.mu.Unlock()
	last, known := n.seen[f.Record.Name]
	if stale, _ := ctx.Value(staleKey{}).(bool); stale && known {
		return last[0]
	}
	switch {
	case !known:
		n.seen[f.Record.Name] = [2]claim.Found{f, f}
	case last[1].Record.Op != f.Record.Op:
		n.seen[f.Record.Name] = [2]claim.Found{last[1], f}
	}
	return f
}

// Scheme implements [claim.Store].
func (n *Network) Scheme() string { return n.store.Scheme() }

// Get implements [claim.Store].
func (n *Network) Get(ctx context.Context, name string) (claim.Found, error) {
	return carry(ctx, n, Call{Get, name}, func(ctx context.Context) (claim.Found, error) {
		f, err := n.store.Get(ctx, name)
		if err != nil {
			return f, err
		}
		f.Record.Name = name
		return n.remember(ctx, f), nil
	})
}

// Swap implements [claim.Store].
func (n *Network) Swap(ctx context.Context, s claim.Swap) (bool, error) {
	return carry(ctx, n, Call{Swap, s.Record.Name}, func(ctx context.Context) (bool, error) {
		return n.store.Swap(ctx, s)
	})
}

// SwapAll implements [claim.Batcher].
func (n *Network) SwapAll(ctx context.Context, swaps []claim.Swap) ([]bool, error) {
	return carry(ctx, n, Call{Method: Swap}, func(ctx context.Context) ([]bool, error) {
		if b, ok := n.store.(claim.Batcher); ok {
			return b.SwapAll(ctx, swaps)
		}
		done := make([]bool, len(swaps))
		for i, s := range swaps {
			var err error
			if done[i], err = n.store.Swap(ctx, s); err != nil {
				return nil, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, err)
			}
		}
		return done, nil
	})
}

// GetAll implements [claim.Gatherer].
func (n *Network) GetAll(ctx context.Context, names []string) ([]claim.Found, error) {
	return carry(ctx, n, Call{Method: Get}, func(ctx context.Context) ([]claim.Found, error) {
		if g, ok := n.store.(claim.Gatherer); ok {
			return g.GetAll(ctx, names)
		}
		all := make([]claim.Found, len(names))
		for i, name := range names {
			f, err := n.store.Get(ctx, name)
			if err != nil {
				f.Err = err
			}
			f.Record.Name = name
			all[i] = f
		}
		return all, nil
	})
}

// List implements [claim.Store].
func (n *Network) List(ctx context.Context, prefix, after string, limit int) ([]claim.Found, error) {
	return carry(ctx, n, Call{Method: List}, func(ctx context.Context) ([]claim.Found, error) {
		all, err := n.store.List(ctx, prefix, after, limit)
		for i, f := range all {
			if f.Err == nil {
				all[i] = n.remember(ctx, f)
			}
		}
		return all, err
	})
}

// Observe implements [claim.Store].
func (n *Network) Observe(ctx context.Context, name string, d clock.Domain, op claim.Op, at clock.Instant) (clock.Instant, error) {
	return carry(ctx, n, Call{Observe, name}, func(ctx context.Context) (clock.Instant, error) {
		return n.store.Observe(ctx, name, d, op, at)
	})
}

// Sweep implements [claim.Store].
func (n *Network) Sweep(ctx context.Context, prefix, after, through string) error {
	_, err := carry(ctx, n, Call{Method: Sweep}, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, n.store.Sweep(ctx, prefix, after, through)
	})
	return err
}

// RaiseFloor implements [claim.Store].
func (n *Network) RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error) {
	return carry(ctx, n, Call{Method: RaiseFloor}, func(ctx context.Context) (backend.Token, error) {
		return n.store.RaiseFloor(ctx, t)
	})
}

// Remove implements [claim.Store].
func (n *Network) Remove(ctx context.Context, name string, old claim.Op) (bool, error) {
	return carry(ctx, n, Call{Remove, name}, func(ctx context.Context) (bool, error) {
		return n.store.Remove(ctx, name, old)
	})
}

// Listen implements [claim.Notifier].
func (n *Network) Listen(ctx context.Context, changed func(name string)) error {
	inner, ok := n.store.(claim.Notifier)
	if !ok {
		return &backend.UnsupportedError{Backend: n.Scheme(), What: "to tell of changes"}
	}
	w, f, err := n.depart(ctx, Call{Method: Listen})
	if err != nil {
		return err
	}
	defer n.arrive(w)
	if f.LoseRequest {
		return n.lost(Call{Method: Listen}, errNoAnswer)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	n.running.Go(func() {
		select {
		case <-ctx.Done():
		case <-w.broken:
			cancel(n.lost(Call{Method: Listen}, errNewPrimary))
		case <-n.closed:
			cancel(fmt.Errorf("%s: listen: %w", n.Scheme(), backend.ErrClosed))
		}
	})
	if err := inner.Listen(ctx, changed); ctx.Err() == nil {
		return err
	}
	return context.Cause(ctx)
}

// Judges implements [claim.Judge].
func (n *Network) Judges() bool {
	j, ok := n.store.(claim.Judge)
	return ok && j.Judges()
}

// Bounds implements [claim.Bounded].
func (n *Network) Bounds() bool {
	b, ok := n.store.(claim.Bounded)
	return ok && b.Bounds()
}

// Domain implements [claim.Local].
func (n *Network) Domain(d clock.Domain) clock.Domain {
	if l, ok := n.store.(claim.Local); ok {
		return l.Domain(d)
	}
	return d
}

// Gone implements [claim.Local].
func (n *Network) Gone(d clock.Domain) bool {
	l, ok := n.store.(claim.Local)
	return ok && l.Gone(d)
}

// Acknowledge implements [claim.Clocks].
func (n *Network) Acknowledge(ctx context.Context, d clock.Domain, at clock.Instant) error {
	_, err := carry(ctx, n, Call{Method: Acknowledge}, func(ctx context.Context) (struct{}, error) {
		if c, ok := n.store.(claim.Clocks); ok {
			return struct{}{}, c.Acknowledge(ctx, d, at)
		}
		return struct{}{}, nil
	})
	return err
}

// Acknowledged implements [claim.Clocks].
func (n *Network) Acknowledged(ctx context.Context, d clock.Domain) (clock.Instant, bool, error) {
	type known struct {
		at clock.Instant
		ok bool
	}
	k, err := carry(ctx, n, Call{Method: Acknowledged}, func(ctx context.Context) (k known, err error) {
		if c, ok := n.store.(claim.Clocks); ok {
			k.at, k.ok, err = c.Acknowledged(ctx, d)
		}
		return k, err
	})
	return k.at, k.ok, err
}

// CanMark implements [claim.Marker].
func (n *Network) CanMark() error {
	if m, ok := n.store.(claim.Marker); ok {
		return m.CanMark()
	}
	return nil
}
