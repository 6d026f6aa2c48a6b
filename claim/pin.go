package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
)

// A write by other clients than the holder leaves the promise untouched: domain, written and expiry stay those
// of the holder's last write. Only the op is new. An observer in another domain starts its count over when it
// sees the new op, so the lease ends later for it and never sooner.

// Pin keeps a name with its holder: even when its lease has expired, no client can take or end it until it is
// unpinned for the same reason. The reasons are a set. A vacant name can be pinned too; then the next holder
// inherits the pin. A holder may still release a pinned name.
func (c *Client) Pin(ctx context.Context, name, why string) error {
	if why == "" {
		return fmt.Errorf("%w: the reason is empty: a pin needs one, and unpinning needs the same one", backend.ErrInvalid)
	}
	return c.pins(ctx, name, why, func(pins []string) ([]string, error) {
		i, found := slices.BinarySearch(pins, why)
		switch {
		case found:
			return pins, nil
		case len(pins) >= MaxPins:
			return nil, fmt.Errorf("%w: %s already has %d pins, the most that are possible: unpin one first", backend.ErrInvalid, name, MaxPins)
		}
		return slices.Insert(slices.Clone(pins), i, why), nil
	})
}

// Unpin removes one reason, or all if why is empty. It is no error if there is none.
func (c *Client) Unpin(ctx context.Context, name, why string) error {
	return c.pins(ctx, name, why, func(pins []string) ([]string, error) {
		if why == "" {
			return nil, nil
		}
		return slices.DeleteFunc(slices.Clone(pins), func(pin string) bool { return pin == why }), nil
	})
}

// pins changes the set of pins, if the change makes a difference.
func (c *Client) pins(ctx context.Context, name, why string, change func([]string) ([]string, error)) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	if err := checkReason(why); err != nil {
		return err
	}
	e := c.patient(name)
	e.wrote = func(*Record) {}
	e.decide = func(_ context.Context, s *seen) (*plan, error) {
		pins, err := change(s.Record.Pins)
		if err != nil || slices.Equal(pins, s.Record.Pins) {
			return nil, err
		}
		p := &plan{record: s.Record}
		p.record.Pins = pins
		return p, nil
	}
	return e.run(ctx, nil)
}

// Announce changes the text on the holder's card. It prolongs nothing.
func (c *Client) Announce(ctx context.Context, l *Lease, text string) error {
	if err := c.checkOwn(l); err != nil {
		return err
	}
	if err := backend.CheckCardText(text); err != nil {
		return err
	}
	known, err := l.lastKnown()
	if err != nil {
		return err
	}
	e := c.hurried(l.name)
	e.decide = func(_ context.Context, s *seen) (*plan, error) {
		if err := l.checkHeld(s); err != nil {
			return nil, err
		}
		p := &plan{record: s.Record}
		p.record.Card.Text = text
		return p, nil
	}
	e.wrote = func(r *Record) { l.learn(&seen{Found: Found{Record: *r}, at: c.Now()}) }
	return e.run(ctx, known)
}
