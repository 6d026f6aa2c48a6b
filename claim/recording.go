package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

// recording decides for one call of [Client.RaiseMark] or [Client.Finish].
type recording struct {
	lease  *Lease
	effort *effort
	tick   backend.Tick
	ends   bool          // the tenure ends
	hold   time.Duration // if ends: how long the name stays held
}

// run carries the call out, from the last known record of the lease or else from a read.
func (a *recording) run(ctx context.Context, known *seen) error {
	a.effort.fromMemory = known != nil
	err := a.effort.run(ctx, known)
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	doubt := a.doubt()
	*doubt = err != nil && (*doubt || errors.Is(err, backend.ErrUnknownOutcome))
	return err
}

// doubt returns whether an earlier call of this kind for the lease has ended with an unknown outcome, and none has
// succeeded since. The lock of the lease guards it.
func (a *recording) doubt() *bool {
	if a.ends {
		return &a.lease.finishDoubted
	}
	return &a.lease.markDoubted
}

// doubted reports whether an earlier attempt may have taken effect without an answer.
func (a *recording) doubted() bool {
	a.lease.mu.Lock()
	defer a.lease.mu.Unlock()
	return a.effort.doubted || *a.doubt()
}

func (a *recording) decide(_ context.Context, s *seen) (*plan, error) {
	l, r := a.lease, &s.Record
	switch {
	case a.effort.fromMemory && !l.client.Now().Before(l.Until()):
		return nil, nil // whether it has expired is decided from a read
	case !l.matches(r):
		return nil, a.overtaken(r)
	case a.ends && r.HeldOn(), !a.ends && a.reached(r.Mark) && a.owns(r.Mark):
		return nil, nil // an earlier attempt has succeeded
	case len(r.Pins) == 0 && l.client.verdict(s).over:
		return nil, l.expire()
	}
	mark, err := r.Mark, error(nil)
	if !a.tick.IsZero() {
		if mark, err = raised(r.Name, mark, a.tick, l.Token()); err != nil {
			return nil, err
		}
	}
	if !a.ends {
		if err := l.checkHeld(s); err != nil || mark == r.Mark {
			return nil, err
		}
		p := &plan{record: *r}
		p.record.Mark = mark
		return p, nil
	}
	p := l.client.planRelease(l, s)
	if a.hold > 0 && r.Revoked == "" { // a tenure that was revoked ends with its holder's release
		p = l.client.planHold(s, a.hold)
	}
	p.record.Mark, p.record.Pins = mark, nil
	return p, nil
}

// reached reports whether a mark is that of the tick, or of a later one.
func (a *recording) reached(m backend.Mark) bool {
	return !a.tick.IsZero() && m.Tick.SameKind(a.tick) && m.Tick.Compare(a.tick) >= 0
}

// owns reports whether a mark was raised under the token of the lease.
func (a *recording) owns(m backend.Mark) bool { return m.Token == a.lease.Token() }

// planHold decides to release a tenure whose name stays held for d. It may end sooner than was promised to its holder,
// who relies on it no more. d is promised to all others: if the store counts, that it has passed on any clock.
func (c *Client) planHold(s *seen, d time.Duration) *plan {
	p := &plan{record: s.Record, owner: true}
	if c.judges {
		d = c.opts.Drift.WaitRemote(d)
	}
	r, now := &p.record, c.Now()
	r.Domain, r.Written, r.TTL, r.Expiry = c.domain, now, d, now.Add(d)
	r.Revoked = heldOn
	return p
}

// overtaken returns the result for a record that no longer belongs to the lease. If the answer to an earlier write was
// lost, the record may still show what became of that write: marks do not fall, and the past says how tenures ended.
func (a *recording) overtaken(r *Record) error {
	marks, reached := !a.tick.IsZero(), a.reached(r.Mark)
	token := a.lease.Token()
	why := whyPast(r.Past, token)
	switch {
	case !a.doubted(), marks && !reached,
		a.ends && r.Held() && r.Token == token, // it was resumed
		a.ends && a.hold == 0 && why == backend.Expired:
		return a.lease.loseTo(r)
	case reached && a.owns(r.Mark), a.ends && why == backend.Released:
		return nil
	}
	return fmt.Errorf("%w: an earlier request for %s may have taken effect before the tenure ended", backend.ErrUnknownOutcome, r.Name)
}

// whyPast returns why the tenure with that token ended, or nothing if that is unknown.
func whyPast(past []backend.Tenure, token backend.Token) backend.Reason {
	i := slices.IndexFunc(past, func(p backend.Tenure) bool { return p.Token == token })
	if i < 0 {
		return ""
	}
	return past[i].Why
}
