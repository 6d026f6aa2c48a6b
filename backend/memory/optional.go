package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// The abilities of a Backend.
var (
	_ backend.Backend     = (*Backend)(nil)
	_ backend.Clocked     = (*Backend)(nil)
	_ backend.Watcher     = (*Backend)(nil)
	_ backend.Historian   = (*Backend)(nil)
	_ backend.Announcer   = (*Backend)(nil)
	_ backend.Resumer     = (*Backend)(nil)
	_ backend.Revoker     = (*Backend)(nil)
	_ backend.Pinner      = (*Backend)(nil)
	_ backend.Transferrer = (*Backend)(nil)
	_ backend.Marker      = (*Backend)(nil)
	_ backend.Finisher    = (*Backend)(nil)
	_ backend.Preferrer   = (*Backend)(nil)
	_ backend.QueueLister = (*Backend)(nil)
)

func isUnknown(err error) bool { return errors.Is(err, backend.ErrUnknownOutcome) }

// Watch implements [backend.Watcher].
func (b *Backend) Watch(ctx context.Context, prefix string, report func(backend.Event)) error {
	var w *watcher
	if err := b.pastFaults(ctx, Watch, prefix, func() { w = b.store.addWatcher(prefix) }); err != nil {
		if w != nil {
			b.store.unwatch(w)
		}
		return err
	}
	defer b.store.unwatch(w)
	ended := b.store.life()
	for {
		moved := b.store.clock.Moved()
		events, now, soonest := b.store.takeEvents(w)
		for _, e := range events {
			if err := b.usable(ctx); err != nil {
				return err
			}
			report(e)
		}
		if err := b.pause(ctx, now.Until(soonest), moved, w.wake, ended); err != nil {
			return err
		}
	}
}

// History implements [backend.Historian]. The present tenure is the first.
func (b *Backend) History(ctx context.Context, name string, limit int) (past []backend.Tenure, err error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	err = b.pastFaults(ctx, History, name, func() {
		b.store.lock()
		defer b.store.mu.Unlock()
		r := b.store.names[name]
		if r == nil {
			return
		}
		past = slices.Clone(r.past)
		if len(r.queue) > 0 {
			c := r.queue[0]
			past = append(past, backend.Tenure{Token: c.token, Holder: c.holder, From: c.since})
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(past)
	return past[:min(len(past), max(0, limit))], nil
}

// Announce implements [backend.Announcer].
func (b *Backend) Announce(ctx context.Context, l backend.Lease, text string) error {
	if err := backend.CheckCardText(text); err != nil {
		return err
	}
	return b.changeClaim(ctx, Announce, l, func(r *record, place int, now clock.Instant) error {
		r.queue[place].holder.Card.Text = text
		if place == 0 {
			b.store.notify(backend.Announced, r, "", now)
		}
		return nil
	})
}

// changeClaim changes the claim of l, if it still exists.
func (b *Backend) changeClaim(ctx context.Context, op Op, l backend.Lease, do func(r *record, place int, now clock.Instant) error) error {
	mine, err := ownLease(l)
	if err != nil {
		return err
	}
	return b.callPastFaults(ctx, op, mine.name, func() error {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		c := b.store.claims[mine.id]
		if c == nil {
			return gone(mine)
		}
		r, place := b.store.place(c)
		return do(r, place, now)
	})
}

// callPastFaults carries a call past the faults. do returns the store's answer.
func (b *Backend) callPastFaults(ctx context.Context, op Op, name string, do func() error) error {
	var refused error
	if err := b.pastFaults(ctx, op, name, func() { refused = do() }); err != nil {
		return err
	}
	return refused
}

// changeTenure changes the tenure of a name, which must have that token unless t is 0.
func (b *Backend) changeTenure(ctx context.Context, op Op, name string, t backend.Token, do func(r *record, now clock.Instant) error) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	return b.callPastFaults(ctx, op, name, func() error {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		r := b.store.names[name]
		switch {
		case r == nil || len(r.queue) == 0:
			return fmt.Errorf("memory: %w: %s has no holder", backend.ErrLost, name)
		case t != 0 && r.queue[0].token != t:
			return fmt.Errorf("memory: %w: %s is held with token %d, not %d", backend.ErrLost, name, r.queue[0].token, t)
		}
		return do(r, now)
	})
}

// Resume implements [backend.Resumer]. The lease is then shared with its previous holder, if that still lives.
func (b *Backend) Resume(ctx context.Context, name string, t backend.Token, by backend.Holder) (backend.Lease, backend.Grant, error) {
	if err := backend.CheckHolder(by); err != nil {
		return nil, backend.Grant{}, err
	}
	if t == 0 {
		return nil, backend.Grant{}, fmt.Errorf("memory: %w: the token is 0: give the token of the tenure", backend.ErrInvalid)
	}
	var l backend.Lease
	var grant backend.Grant
	err := b.changeTenure(ctx, Resume, name, t, func(r *record, now clock.Instant) error {
		c := r.queue[0]
		if renewed := b.store.renewOne(&lease{id: c.id, name: name}, now); renewed.Err != nil {
			return renewed.Err
		}
		c.holder = by
		l, grant = &lease{id: c.id, name: name}, b.store.grant(c)
		b.store.notify(backend.Announced, r, "", now)
		return nil
	})
	if err != nil {
		return nil, backend.Grant{}, err
	}
	return l, grant, nil
}

// Revoke implements [backend.Revoker].
func (b *Backend) Revoke(ctx context.Context, name string, t backend.Token, reason string, now bool) error {
	return b.changeTenure(ctx, Revoke, name, t, func(r *record, at clock.Instant) error {
		if r.pinned {
			return fmt.Errorf("memory: %w: %s: %s", backend.ErrPinned, name, backend.Printable(r.why))
		}
		c := r.queue[0]
		c.refused, c.note = true, reason
		if now {
			b.store.end(r, 0, backend.Revoked, at)
		}
		return nil
	})
}

// Pin implements [backend.Pinner].
func (b *Backend) Pin(ctx context.Context, name, reason string) error {
	err := b.changeTenure(ctx, Pin, name, 0, func(r *record, _ clock.Instant) error {
		r.pinned, r.why = true, reason
		return nil
	})
	if errors.Is(err, backend.ErrLost) {
		return fmt.Errorf("memory: %w: %s has no holder, so there is no tenure to pin", backend.ErrInvalid, name)
	}
	return err
}

// Unpin implements [backend.Pinner].
func (b *Backend) Unpin(ctx context.Context, name string) error {
	err := b.changeTenure(ctx, Pin, name, 0, func(r *record, _ clock.Instant) error {
		r.pinned, r.why = false, ""
		b.store.noteEnd(r.queue[0].end)
		return nil
	})
	if errors.Is(err, backend.ErrLost) {
		return nil
	}
	return err
}

// Transfer implements [backend.Transferrer].
func (b *Backend) Transfer(ctx context.Context, l backend.Lease) error {
	return b.changeClaim(ctx, Transfer, l, func(r *record, place int, now clock.Instant) error {
		switch {
		case place > 0:
			return fmt.Errorf("memory: %w: a waiter in the queue for %s cannot transfer it", backend.ErrInvalid, r.name)
		case r.pinned:
			return fmt.Errorf("memory: %w: %s: %s", backend.ErrPinned, r.name, backend.Printable(r.why))
		case len(r.queue) == 1:
			return fmt.Errorf("memory: %w: no waiter is in the queue for %s", backend.ErrInvalid, r.name)
		}
		b.store.end(r, 0, backend.Transferred, now)
		return nil
	})
}
