package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Release gives a name back. It is no error if the lease has ended already, and never ends another's. From
// the call on the lease cannot be prolonged any more, even if it fails; then it should be tried again.
//
// Pins stay, and are inherited by the next holder.
func (c *Client) Release(ctx context.Context, l *Lease) error { return c.release(ctx, l, false) }

// ReleaseAndUnpin does what Release does, and removes all pins of the name in the same write. So a pin ends with the
// tenure that it was made in.
func (c *Client) ReleaseAndUnpin(ctx context.Context, l *Lease) error { return c.release(ctx, l, true) }

// release gives a name back, and takes the pins back with it if unpins is true.
func (c *Client) release(ctx context.Context, l *Lease, unpins bool) error {
	if err := c.own(l); err != nil {
		return err
	}
	l.mu.Lock()
	l.given = true
	absent, known := l.absent, l.known
	l.mu.Unlock()
	if absent {
		return nil
	}
	e := c.hurried(l.name)
	e.decide = func(_ context.Context, s *seen) (*plan, error) {
		p := c.giveBack(l, s)
		if p != nil && unpins && !p.record.Held() && l.holds(&s.Record) {
			p.record.Pins = nil
		}
		return p, nil
	}
	e.wrote = c.leave
	from := &known
	if !known.Record.Exists() {
		from = nil
	}
	if err := e.run(ctx, from); err != nil {
		return err
	}
	l.left()
	l.doubts(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsettled, l.id)
	return nil
}

// giveBack decides for a release.
func (c *Client) giveBack(l *Lease, s *seen) *plan {
	switch {
	case l.holds(&s.Record) && s.Record.Revoked != "":
		return c.vacate(s, backend.Revoked, s.Record.Revoked)
	case l.holds(&s.Record):
		return c.vacate(s, backend.Released, "")
	case slices.Contains(l.doubtful(), s.Record.Op):
		return c.fence(l, s)
	}
	return nil
}

// fence keeps the unanswered writes of a claim from landing: the record gets a new op. Of a vacant one it
// becomes known that this claim has ended, should it be made again.
func (c *Client) fence(l *Lease, s *seen) *plan {
	r := &s.Record
	switch {
	case !r.Held():
		p := &plan{record: c.vacant(s)}
		p.record.Incarnation = l.id
		return p
	case len(r.Pins) == 0 && c.verdict(s).over:
		why, note := endOf(r)
		p := c.vacate(s, why, note)
		p.record.Incarnation, p.ended = l.id, c.judges
		return p
	}
	return &plan{record: *r}
}

// vacate decides to end a tenure. The tombstone keeps the incarnation, so that a late claim with its id is
// not mistaken for a new one.
func (c *Client) vacate(s *seen, why backend.Reason, note string) *plan {
	r := c.vacant(s)
	r.Token++ // not above the largest: no holder has that
	r.Incarnation = s.Record.Incarnation
	r.Past = c.past(&s.Record, why, note)
	return &plan{record: r, owner: true, adds: true}
}

// vacant returns a tombstone with the token of the record; if there is none, with the floor.
func (c *Client) vacant(s *seen) Record {
	now := c.Now()
	r := Record{
		Name: s.Record.Name, Token: s.Record.Token, Incarnation: s.Record.Incarnation,
		Domain: c.domain, Written: now, Expiry: now,
		Pins: slices.Clone(s.Record.Pins), Past: s.Record.Past,
	}
	if !s.Record.Exists() {
		r.Token = s.Floor
	}
	return r
}

// Expire makes a name vacant whose lease is surely over. [backend.ErrInvalid] says that it is vacant already,
// [backend.ErrHeld] that the lease may last yet, [backend.ErrPinned] that it is pinned.
func (c *Client) Expire(ctx context.Context, name string) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	var target backend.Token
	e := c.patient(name)
	e.wrote = func(*Record) {}
	e.decide = func(ctx context.Context, s *seen) (*plan, error) {
		r := &s.Record
		switch {
		case e.doubted && r.Token != target:
			return nil, nil // it has ended, if perhaps not by this
		case !r.Held():
			return nil, fmt.Errorf("%w: nobody holds %s", backend.ErrInvalid, name)
		case len(r.Pins) > 0:
			return nil, pinned(r)
		}
		if v := c.judge(ctx, s, false); !v.over {
			return nil, held(r, max(v.ends, 1))
		}
		target = r.Token
		why, note := endOf(r)
		p := c.vacate(s, why, note)
		p.ended = c.judges
		return p, nil
	}
	return e.run(ctx, nil)
}

// Revoke ends the tenure of somebody else: it refuses all further renewals and frees the name when what its
// holder was promised is over; with now it frees it at once, though its holder may still act. t is who is
// meant; 0 means the present holder. [backend.ErrLost] says that nobody holds it, or another.
func (c *Client) Revoke(ctx context.Context, name string, t backend.Token, reason string, now bool) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	if err := checkReason(reason); err != nil {
		return err
	}
	if reason == "" {
		reason = "revoked"
	}
	v := &revoking{client: c, token: t, whoever: t == 0, reason: reason, now: now}
	e := c.hurried(name)
	e.decide = func(_ context.Context, s *seen) (*plan, error) { return v.decide(s, e.doubted) }
	e.wrote = func(*Record) {}
	return e.run(ctx, nil)
}

// revoking decides for a revoke.
type revoking struct {
	client  *Client
	token   backend.Token
	whoever bool
	reason  string
	now     bool
}

func (v *revoking) decide(s *seen, doubted bool) (*plan, error) {
	r := &s.Record
	switch {
	case doubted && r.Token != v.token:
		return nil, nil // the tenure has ended
	case !r.Held():
		return nil, fmt.Errorf("%w: nobody holds %s", backend.ErrLost, r.Name)
	case !v.whoever && r.Token != v.token:
		return nil, fmt.Errorf("%w: %s is held with token %d, not %d", backend.ErrLost, r.Name, r.Token, v.token)
	case len(r.Pins) > 0:
		return nil, pinned(r)
	}
	v.token = r.Token
	if v.now {
		return v.client.vacate(s, backend.Revoked, v.reason), nil
	}
	if r.Revoked != "" {
		return nil, nil
	}
	p := &plan{record: *r}
	p.record.Revoked = v.reason
	return p, nil
}

func pinned(r *Record) error {
	return fmt.Errorf("%w: %s: %s", backend.ErrPinned, backend.Printable(r.Name), backend.Printable(r.Pins[0]))
}
