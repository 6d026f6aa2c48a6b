package claim

import (
	"context"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Mark returns the mark of a name: its highest completed tick.
func (c *Client) Mark(ctx context.Context, name string) (backend.Mark, error) {
	if err := backend.CheckName(name); err != nil {
		return backend.Mark{}, err
	}
	if c.noMarks != nil {
		return backend.Mark{}, c.noMarks
	}
	s, err := c.read(ctx, name)
	if err != nil {
		return backend.Mark{}, err
	}
	return s.Record.Mark, nil
}

// ReplaceMark replaces the mark of a name if it is old, whether or not the name is held, and reports whether it did. The
// zero Mark removes it.
func (c *Client) ReplaceMark(ctx context.Context, name string, old, replacement backend.Mark) (done bool, err error) {
	if err := backend.CheckName(name); err != nil {
		return false, err
	}
	if replacement.Token > maxToken {
		return false, fmt.Errorf("%w: the token of a mark is %d: it may be at most %d", backend.ErrInvalid, replacement.Token, maxToken)
	}
	err = c.changeMark(ctx, name, func(is backend.Mark, doubted bool) (backend.Mark, error) {
		if done = is == old || doubted && is == replacement; done {
			return replacement, nil
		}
		return is, nil
	})
	return done && err == nil, err
}

// InheritMark raises the mark of a name to m, its mark in another store, as [backend.Mark.Raised] says. Repeating it does
// no harm.
func (c *Client) InheritMark(ctx context.Context, name string, m backend.Mark) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	if m.IsZero() {
		return nil
	}
	return c.changeMark(ctx, name, func(is backend.Mark, _ bool) (backend.Mark, error) {
		return raised(name, is, m.Tick, m.Token)
	})
}

// changeMark changes the mark of a name, if the change makes a difference. change gets the present mark, and whether the
// answer to an earlier write was lost.
func (c *Client) changeMark(ctx context.Context, name string, change func(is backend.Mark, doubted bool) (backend.Mark, error)) error {
	if c.noMarks != nil {
		return c.noMarks
	}
	e := c.patient(name)
	e.wrote = func(*Record) {}
	e.decide = func(_ context.Context, s *seen) (*plan, error) {
		mark, err := change(s.Record.Mark, e.doubted)
		if err != nil || mark == s.Record.Mark {
			return nil, err
		}
		p := &plan{record: s.Record}
		p.record.Mark = mark
		return p, nil
	}
	return e.run(ctx, nil)
}

// raised returns the mark of a name after t was completed under the token.
func raised(name string, m backend.Mark, t backend.Tick, token backend.Token) (backend.Mark, error) {
	m, err := m.Raised(t, token)
	if err != nil {
		err = fmt.Errorf("%s: %w", backend.Printable(name), err)
	}
	return m, err
}

// RaiseMark records that the holder has completed a tick, in one write with the check that the lease holds its name. An
// older tick than that of the mark changes nothing. [backend.ErrLost] says that the lease does not hold the name, and that
// nothing was recorded. After [backend.ErrUnknownOutcome] it may be repeated.
func (c *Client) RaiseMark(ctx context.Context, l *Lease, t backend.Tick) error {
	if err := c.checkOwn(l); err != nil {
		return err
	}
	if err := backend.CheckTick(t); err != nil {
		return err
	}
	if c.noMarks != nil {
		return c.noMarks
	}
	e := c.hurried(l.name)
	a := &recording{lease: l, effort: e, tick: t}
	known, err := l.lastKnown()
	if err != nil && !a.doubted() {
		return err
	}
	e.decide = a.decide
	e.wrote = func(r *Record) { l.learn(&seen{Found: Found{Record: *r}, at: c.Now()}) }
	return a.run(ctx, known)
}

// CheckFinish returns an error if [Client.Finish] would refuse what f says.
func (c *Client) CheckFinish(f backend.Finish) error {
	switch {
	case f.Hold < 0 || f.Hold > MaxTTL:
		return fmt.Errorf("%w: a name cannot be held on for %v: the longest time is %v", backend.ErrInvalid, f.Hold, MaxTTL)
	case !f.Tick.IsZero():
		return c.noMarks
	}
	return nil
}

// Finish releases a lease that holds its name, as [Client.ReleaseAndUnpin] does. In the same write it records f.Tick as
// completed, and with f.Hold it keeps the name held for that time from now, by a record that no client renews. From the
// call on the lease cannot be prolonged, even if Finish fails.
//
// [backend.ErrLost] says that the lease did not hold the name any more, and that nothing was recorded. After
// [backend.ErrUnknownOutcome] it should be repeated: it notices if the first call took effect.
func (c *Client) Finish(ctx context.Context, l *Lease, f backend.Finish) error {
	if err := c.checkOwn(l); err != nil {
		return err
	}
	if err := c.CheckFinish(f); err != nil {
		return err
	}
	e := c.hurried(l.name)
	a := &recording{lease: l, effort: e, tick: f.Tick, ends: true, hold: f.Hold}
	known, finished, err := l.beginFinish(e)
	if finished || err != nil {
		return err
	}
	e.decide, e.wrote, e.sending = a.decide, c.rememberReleased, l.rememberFinish
	if err := a.run(ctx, known); err != nil {
		return err
	}
	l.endFinish()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsettled, l.id)
	return nil
}

// beginFinish notes that the lease is being released, and gives the effort the writes of earlier attempts. It returns the
// last known record, or that an earlier attempt has succeeded, or why the lease cannot be finished.
func (l *Lease) beginFinish(e *effort) (known *seen, finished bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.finished:
		return nil, true, nil
	case l.token == 0:
		return nil, false, fmt.Errorf("%w: it is unknown whether %s was claimed: claim it again with the same id, or release it", backend.ErrInvalid, l.name)
	case (l.absent || l.expired) && l.lost != nil:
		return nil, false, l.lost
	case l.absent:
		return nil, false, fmt.Errorf("%w: %s was released", backend.ErrLost, l.name)
	}
	l.released = true
	e.sent = append(e.sent, l.finishes...)
	is := l.known
	return &is, false, nil
}

// rememberFinish remembers a write of Finish before it is sent.
func (l *Lease) rememberFinish(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.finishes) == maxSent {
		l.finishes = l.finishes[1:]
	}
	l.finishes = append(l.finishes, r)
}

// endFinish notes that Finish has succeeded.
func (l *Lease) endFinish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished, l.absent, l.finishes, l.doubt = true, true, nil, nil
}
