package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
)

// What others than the holder write into a record leaves the promise in it untouched: domain, written and
// expiry stay those of the holder's last write. Only the op is new, so an observer in another domain starts its
// count over when it sees it, which makes the lease end later and never sooner.

// Pin keeps a name with its holder: its lease may be over, but nobody can take or end it until it is unpinned
// for the same reason. The reasons are a set. A vacant name can be pinned too; then the next holder inherits
// it. A holder may still release what is pinned.
func (c *Client) Pin(ctx context.Context, name, why string) error {
	if why == "" {
		return fmt.Errorf("%w: a pin needs a reason, which is also needed to take it back", backend.ErrInvalid)
	}
	return c.pins(ctx, name, why, func(pins []string) ([]string, error) {
		i, found := slices.BinarySearch(pins, why)
		switch {
		case found:
			return pins, nil
		case len(pins) >= MaxPins:
			return nil, fmt.Errorf("%w: %s has %d pins already, and no more are possible", backend.ErrInvalid, name, MaxPins)
		}
		return slices.Insert(slices.Clone(pins), i, why), nil
	})
}

// Unpin takes one reason back, or all if why is empty. It is no error if there is none.
func (c *Client) Unpin(ctx context.Context, name, why string) error {
	return c.pins(ctx, name, why, func(pins []string) ([]string, error) {
		if why == "" {
			return nil, nil
		}
		return slices.DeleteFunc(slices.Clone(pins), func(pin string) bool { return pin == why }), nil
	})
}

// pins changes the set of pins, if it has to be changed.
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
