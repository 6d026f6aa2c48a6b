package claim

import (
	"context"
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Release ends a tenure. It is no error if the lease has ended already, and it never ends another tenure. From
// the call on the lease cannot be prolonged, even if Release fails; then try it again.
//
// Pins stay, and the next holder inherits them.
func (c *Client) Release(ctx context.Context, l *Lease) error { return c.endLease(ctx, l, false) }

// ReleaseAndUnpin does what Release does, and removes all pins of the name in the same write. So a pin ends
// with the tenure in which it was made.
func (c *Client) ReleaseAndUnpin(ctx context.Context, l *Lease) error {
	return c.endLease(ctx, l, true)
}

// endLease releases a lease, and removes the pins with it if unpins is true.
func (c *Client) endLease(ctx context.Context, l *Lease, unpins bool) error {
	if err := c.checkOwn(l); err != nil {
		return err
	}
	l.mu.Lock()
	l.released = true
	absent, known := l.absent, l.known
	l.mu.Unlock()
	if absent {
		return nil
	}
	e := c.hurried(l.name)
	e.decide = func(_ context.Context, s *seen) (*plan, error) {
		p := c.planRelease(l, s)
		if p != nil && unpins && !p.record.Held() && l.matches(&s.Record) {
			p.record.Pins = nil
		}
		return p, nil
	}
	e.wrote = c.rememberReleased
	from := &known
	if !known.Record.Exists() {
		from = nil
	}
	if err := e.run(ctx, from); err != nil {
		return err
	}
	l.markAbsent()
	l.setDoubt(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsettled, l.id)
	return nil
}

// planRelease decides for a release.
func (c *Client) planRelease(l *Lease, s *seen) *plan {
	switch {
	case l.matches(&s.Record) && s.Record.HeldOn():
		return nil // a Finish of this lease has taken effect
	case l.matches(&s.Record) && s.Record.Revoked != "":
		return c.planEnd(s, backend.Revoked, s.Record.Revoked)
	case l.matches(&s.Record):
		return c.planEnd(s, backend.Released, "")
	case slices.Contains(l.doubtfulOps(), s.Record.Op):
		return c.planBlock(l, s)
	}
	return nil
}

// planBlock keeps the unanswered writes of a claim from landing: it gives the record a new op. A vacant record
// then also says that this claim has ended, should it be repeated.
func (c *Client) planBlock(l *Lease, s *seen) *plan {
	r := &s.Record
	switch {
	case !r.Held():
		p := &plan{record: c.tombstone(s)}
		p.record.Incarnation = l.id
		return p
	case len(r.Pins) == 0 && c.verdict(s).over:
		why, note := r.EndsAs()
		p := c.planEnd(s, why, note)
		p.record.Incarnation, p.ended = l.id, c.judges
		return p
	}
	return &plan{record: *r}
}

// planEnd decides to end a tenure. The tombstone keeps the incarnation, so that a late claim with its id is not
// mistaken for a new one.
func (c *Client) planEnd(s *seen, why backend.Reason, note string) *plan {
	r := c.tombstone(s)
	r.Token++ // never exceeds the largest number: no holder has maxToken+1
	r.Incarnation = s.Record.Incarnation
	r.Past = c.pastWith(&s.Record, why, note)
	return &plan{record: r, owner: true, adds: true}
}

// tombstone returns a vacant record with the token of the old one or, if there is none, with the floor.
func (c *Client) tombstone(s *seen) Record {
	now := c.Now()
	r := Record{
		Name: s.Record.Name, Token: s.Record.Token, Incarnation: s.Record.Incarnation,
		Domain: c.domain, Written: now, Expiry: now,
		Pins: slices.Clone(s.Record.Pins), Past: s.Record.Past, Mark: s.Record.Mark,
	}
	if !s.Record.Exists() {
		r.Token = s.Floor
	}
	return r
}

// Expire vacates a name whose lease has certainly expired. [backend.ErrInvalid] says that it is vacant already,
// [backend.ErrHeld] that the lease may still last, [backend.ErrPinned] that it is pinned.
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
			return nil, nil // the tenure has ended, perhaps by another client
		case !r.Held():
			return nil, fmt.Errorf("%w: %s has no holder", backend.ErrInvalid, name)
		case len(r.Pins) > 0:
			return nil, pinned(r)
		}
		if v := c.fullVerdict(ctx, s, false); !v.over {
			return nil, heldError(r, max(v.ends, 1))
		}
		target = r.Token
		why, note := r.EndsAs()
		p := c.planEnd(s, why, note)
		p.ended = c.judges
		return p, nil
	}
	return e.run(ctx, nil)
}

// Revoke ends the tenure of another holder. It refuses all further renewals, and frees the name when the
// holder's promise has passed. With now it frees the name at once, though its holder may still act. t is the
// token of the tenure to end; 0 means the present one. [backend.ErrLost] says that the name has no holder, or
// another token.
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
	v := &revoking{client: c, token: t, anyHolder: t == 0, reason: reason, now: now}
	e := c.hurried(name)
	e.decide = func(_ context.Context, s *seen) (*plan, error) { return v.decide(s, e.doubted) }
	e.wrote = func(*Record) {}
	return e.run(ctx, nil)
}

// revoking decides for one revocation.
type revoking struct {
	client    *Client
	token     backend.Token
	anyHolder bool
	reason    string
	now       bool
}

func (v *revoking) decide(s *seen, doubted bool) (*plan, error) {
	r := &s.Record
	switch {
	case doubted && r.Token != v.token:
		return nil, nil // the tenure has ended
	case !r.Held():
		return nil, fmt.Errorf("%w: %s has no holder", backend.ErrLost, r.Name)
	case !v.anyHolder && r.Token != v.token:
		return nil, fmt.Errorf("%w: %s is held with token %d, not %d", backend.ErrLost, r.Name, r.Token, v.token)
	case len(r.Pins) > 0:
		return nil, pinned(r)
	}
	v.token = r.Token
	if v.now {
		return v.client.planEnd(s, backend.Revoked, v.reason), nil
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
