package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
)

// All that a backend can do.
var (
	_ driver.Backend     = (*Backend)(nil)
	_ driver.Clocked     = (*Backend)(nil)
	_ driver.Watcher     = (*Backend)(nil)
	_ driver.Historian   = (*Backend)(nil)
	_ driver.Announcer   = (*Backend)(nil)
	_ driver.Adopter     = (*Backend)(nil)
	_ driver.Revoker     = (*Backend)(nil)
	_ driver.Pinner      = (*Backend)(nil)
	_ driver.Transferrer = (*Backend)(nil)
)

func isUnknown(err error) bool { return errors.Is(err, driver.ErrUnknownOutcome) }

// Watch implements [driver.Watcher].
func (b *Backend) Watch(ctx context.Context, prefix string, report func(driver.Event)) error {
	var w *watcher
	if err := b.pass(ctx, Watch, prefix, func() { w = b.store.watch(prefix) }); err != nil {
		if w != nil {
			b.store.unwatch(w)
		}
		return err
	}
	defer b.store.unwatch(w)
	ended := b.store.life()
	for {
		moved := b.store.clock.Moved()
		events, now, soonest := b.store.take(w)
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

// History implements [driver.Historian]. The present tenancy is the first.
func (b *Backend) History(ctx context.Context, name string, limit int) (past []driver.Tenancy, err error) {
	if err := driver.CheckName(name); err != nil {
		return nil, err
	}
	err = b.pass(ctx, History, name, func() {
		b.store.lock()
		defer b.store.mu.Unlock()
		r := b.store.names[name]
		if r == nil {
			return
		}
		past = slices.Clone(r.past)
		if len(r.line) > 0 {
			c := r.line[0]
			past = append(past, driver.Tenancy{Token: c.token, Holder: c.holder, From: c.since})
		}
	})
	if err != nil {
		return nil, err
	}
	slices.Reverse(past)
	return past[:min(len(past), max(0, limit))], nil
}

// Announce implements [driver.Announcer].
func (b *Backend) Announce(ctx context.Context, l driver.Lease, text string) error {
	if err := driver.CheckCardText(text); err != nil {
		return err
	}
	return b.change(ctx, Announce, l, func(r *record, place int, now clock.Instant) error {
		r.line[place].holder.Card.Text = text
		if place == 0 {
			b.store.tell(driver.Announced, r, "", now)
		}
		return nil
	})
}

// change does something to the claim that l refers to, if there still is one.
func (b *Backend) change(ctx context.Context, op Op, l driver.Lease, do func(r *record, place int, now clock.Instant) error) error {
	mine, err := own(l)
	if err != nil {
		return err
	}
	return b.decide(ctx, op, mine.name, func() error {
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

// decide carries a call past the faults whose answer is an error or none.
func (b *Backend) decide(ctx context.Context, op Op, name string, do func() error) error {
	var refused error
	if err := b.pass(ctx, op, name, func() { refused = do() }); err != nil {
		return err
	}
	return refused
}

// holding does something to a name if it is held, and by that token unless it is 0.
func (b *Backend) holding(ctx context.Context, op Op, name string, t driver.Token, do func(r *record, now clock.Instant) error) error {
	if err := driver.CheckName(name); err != nil {
		return err
	}
	return b.decide(ctx, op, name, func() error {
		now := b.store.lock()
		defer b.store.mu.Unlock()
		r := b.store.names[name]
		switch {
		case r == nil || len(r.line) == 0:
			return fmt.Errorf("memory: %w: nobody holds %s", driver.ErrLost, name)
		case t != 0 && r.line[0].token != t:
			return fmt.Errorf("memory: %w: %s is held with token %d, not %d", driver.ErrLost, name, r.line[0].token, t)
		}
		return do(r, now)
	})
}

// Adopt implements [driver.Adopter]. The lease is then shared with its previous holder, if that still lives.
func (b *Backend) Adopt(ctx context.Context, name string, t driver.Token, by driver.Holder) (driver.Lease, driver.Grant, error) {
	if err := driver.CheckHolder(by); err != nil {
		return nil, driver.Grant{}, err
	}
	if t == 0 {
		return nil, driver.Grant{}, fmt.Errorf("memory: %w: a token of 0 is none", driver.ErrInvalid)
	}
	var l driver.Lease
	var grant driver.Grant
	err := b.holding(ctx, Adopt, name, t, func(r *record, now clock.Instant) error {
		c := r.line[0]
		if renewed := b.store.renewOne(&lease{id: c.id, name: name}, now); renewed.Err != nil {
			return renewed.Err
		}
		c.holder = by
		l, grant = &lease{id: c.id, name: name}, b.store.grant(c)
		b.store.tell(driver.Announced, r, "", now)
		return nil
	})
	if err != nil {
		return nil, driver.Grant{}, err
	}
	return l, grant, nil
}

// Revoke implements [driver.Revoker].
func (b *Backend) Revoke(ctx context.Context, name string, t driver.Token, reason string, now bool) error {
	return b.holding(ctx, Revoke, name, t, func(r *record, at clock.Instant) error {
		if r.pinned {
			return fmt.Errorf("memory: %w: %s: %s", driver.ErrPinned, name, driver.Printable(r.why))
		}
		c := r.line[0]
		c.refused, c.note = true, reason
		if now {
			b.store.end(r, 0, driver.Revoked, at)
		}
		return nil
	})
}

// Pin implements [driver.Pinner].
func (b *Backend) Pin(ctx context.Context, name, reason string) error {
	err := b.holding(ctx, Pin, name, 0, func(r *record, _ clock.Instant) error {
		r.pinned, r.why = true, reason
		return nil
	})
	if errors.Is(err, driver.ErrLost) {
		return fmt.Errorf("memory: %w: nobody holds %s, so there is nobody to keep it", driver.ErrInvalid, name)
	}
	return err
}

// Unpin implements [driver.Pinner].
func (b *Backend) Unpin(ctx context.Context, name string) error {
	err := b.holding(ctx, Pin, name, 0, func(r *record, _ clock.Instant) error {
		r.pinned, r.why = false, ""
		b.store.lower(r.line[0].end)
		return nil
	})
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}

// Transfer implements [driver.Transferrer].
func (b *Backend) Transfer(ctx context.Context, l driver.Lease) error {
	return b.change(ctx, Transfer, l, func(r *record, place int, now clock.Instant) error {
		switch {
		case place > 0:
			return fmt.Errorf("memory: %w: who stands in line for %s can not hand it on", driver.ErrInvalid, r.name)
		case r.pinned:
			return fmt.Errorf("memory: %w: %s: %s", driver.ErrPinned, r.name, driver.Printable(r.why))
		case len(r.line) == 1:
			return fmt.Errorf("memory: %w: nobody stands in line for %s", driver.ErrInvalid, r.name)
		}
		b.store.end(r, 0, driver.Transferred, now)
		return nil
	})
}
