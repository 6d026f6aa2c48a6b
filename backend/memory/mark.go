package memory

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Mark implements [backend.Marker].
func (b *Backend) Mark(ctx context.Context, name string) (m backend.Mark, err error) {
	if err := backend.CheckName(name); err != nil {
		return m, err
	}
	err = b.pastFaults(ctx, Mark, name, func() {
		b.store.lock()
		defer b.store.mu.Unlock()
		m = b.store.marks[name]
	})
	return m, err
}

// RaiseMark implements [backend.Marker].
func (b *Backend) RaiseMark(ctx context.Context, l backend.Lease, t backend.Tick) error {
	if err := backend.CheckTick(t); err != nil {
		return err
	}
	return b.changeClaim(ctx, SetMark, l, func(r *record, place int, _ clock.Instant) error {
		c := r.queue[place]
		if place > 0 || c.held {
			return fmt.Errorf("memory: %w: the lease does not hold %s", backend.ErrLost, r.name)
		}
		return b.store.raiseMark(c, t)
	})
}

// raiseMark raises the mark of the name that c holds. The store is locked.
func (s *Store) raiseMark(c *queuedClaim, t backend.Tick) error {
	m, err := s.marks[c.name].Raised(t, c.token)
	if err != nil {
		return fmt.Errorf("memory: %s: %w", c.name, err)
	}
	s.marks[c.name] = m
	return nil
}

// ReplaceMark implements [backend.Marker].
func (b *Backend) ReplaceMark(ctx context.Context, name string, old, replacement backend.Mark) (done bool, err error) {
	if err := backend.CheckName(name); err != nil {
		return false, err
	}
	err = b.pastFaults(ctx, SetMark, name, func() {
		b.store.lock()
		defer b.store.mu.Unlock()
		if done = b.store.marks[name] == old; !done {
			return
		}
		if b.store.marks[name] = replacement; replacement.IsZero() {
			delete(b.store.marks, name)
		}
	})
	return done, err
}

// CheckHold implements [backend.Finisher].
func (b *Backend) CheckHold(_, d time.Duration) error {
	if d > b.store.limits.MaxTTL {
		return fmt.Errorf("memory: %w: a name cannot be held for %v: the longest time is %v", backend.ErrInvalid, d, b.store.limits.MaxTTL)
	}
	return nil
}

// Finish implements [backend.Finisher].
func (b *Backend) Finish(ctx context.Context, l backend.Lease, f backend.Finish) error {
	mine, err := ownLease(l)
	if err != nil {
		return err
	}
	return b.callPastFaults(ctx, Finish, mine.name, func() error {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		return b.store.finish(mine, f, now)
	})
}

// finish carries out a [backend.Finish]. The store is locked.
func (s *Store) finish(l *lease, f backend.Finish, now clock.Instant) error {
	c := s.claims[l.id]
	switch {
	case c == nil && s.released[l.id], c != nil && c.held:
		return nil // a repeated request
	case c == nil:
		return gone(l)
	}
	r, place := s.place(c)
	if place > 0 {
		return fmt.Errorf("memory: %w: the lease does not hold %s", backend.ErrLost, c.name)
	}
	if !f.Tick.IsZero() {
		if err := s.raiseMark(c, f.Tick); err != nil {
			return err
		}
	}
	c.held = true // also remembers that a Finish ended the claim
	switch {
	case c.refused: // the name is not held longer than its holder was promised
		s.end(r, 0, backend.Revoked, now)
		return nil
	case f.Hold <= 0:
		s.end(r, 0, backend.Released, now)
		return nil
	}
	c.ttl, r.pinned, r.why = f.Hold, false, ""
	s.extend(c, now)
	return nil
}

// enqueue adds a claim to the queue: before all waiters of a lower priority, and never before the holder.
func (r *record) enqueue(c *queuedClaim) {
	i := len(r.queue)
	for i > 1 && r.queue[i-1].prio < c.prio {
		i--
	}
	r.queue = slices.Insert(r.queue, i, c)
}

// Prefer implements [backend.Preferrer].
func (b *Backend) Prefer(ctx context.Context, name, to string) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	return b.callPastFaults(ctx, Prefer, name, func() error {
		b.store.lock()
		defer b.store.mu.Unlock()
		if r := b.store.names[name]; r != nil {
			for i := 1; i < len(r.queue); i++ {
				if c := r.queue[i]; c.holder.ID == to {
					c.prio, c.preferred = math.MaxInt16, true
					copy(r.queue[2:i+1], r.queue[1:i])
					r.queue[1] = c
					return nil
				}
			}
		}
		return fmt.Errorf("memory: %w: no claim of %s waits for %s", backend.ErrInvalid, backend.Printable(to), name)
	})
}

// Queue implements [backend.QueueLister].
func (b *Backend) Queue(ctx context.Context, name string, limit int) (waiting []backend.Waiter, err error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	err = b.pastFaults(ctx, Get, name, func() {
		b.store.lock()
		defer b.store.mu.Unlock()
		r := b.store.names[name]
		if r == nil {
			return
		}
		for i := 1; i < len(r.queue) && len(waiting) < limit; i++ {
			waiting = append(waiting, backend.Waiter{Holder: r.queue[i].holder, Priority: r.queue[i].prio, Preferred: r.queue[i].preferred})
		}
	})
	if err != nil {
		return nil, err
	}
	return waiting, nil
}
