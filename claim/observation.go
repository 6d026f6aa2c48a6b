package claim

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// observation is what this client has seen of a record that was last written in another domain.
type observation struct {
	op    Op
	token backend.Token
	span  time.Duration // the promised length of the lease at the write
	first clock.Instant // just after the read that first showed the op
	// latest is the soonest end that was inferred. Each inference is an upper bound by itself.
	latest clock.Instant
	kept   bool // first is in the store
	asked  bool // the store has answered what other processes observed of this tenure
}

// verdict is how long a lease may still last.
type verdict struct {
	latest      clock.Instant // on this client's clocks
	ends        time.Duration // from now, at most; may be negative
	over        bool
	remote      bool // inferred from observations
	domainEnded bool // its writer's domain has ended, at an unknown time
}

// read reads the record of a name, and notes the instant just after.
func (c *Client) read(ctx context.Context, name string) (*seen, error) {
	f, err := c.store.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &seen{Found: f, at: c.Now()}
	if !s.Record.Exists() {
		s.Record.Name = name // a store may leave it out if there is no record
	}
	if err := check(name, &s.Record); err != nil {
		return nil, err
	}
	return s, nil
}

// check returns an error if no client can have written this record.
func check(name string, r *Record) error {
	what := ""
	switch {
	case r.Exists() && r.Name != name:
		what = fmt.Sprintf("is that of %s", r.Name)
	case !r.Exists() && r.Held():
		what = "has a holder and no op"
	case !r.Held():
		return nil
	case r.Token == 0:
		what = "has a holder and no token"
	case r.Incarnation == backend.ID{}:
		what = "has a holder without an incarnation"
	case r.TTL <= 0:
		what = fmt.Sprintf("has a holder with a TTL of %v", r.TTL)
	case r.Expiry.Raw < r.Written.Raw || r.Expiry.Boot < r.Written.Boot:
		what = "expires before it was written"
	default:
		return nil
	}
	return fmt.Errorf("%w: the record of %s %s: repair it by hand, or remove it and raise the floor above its token", backend.ErrCorrupt, name, what)
}

// verdict returns how long the lease in a record may still last, without asking the store.
func (c *Client) verdict(s *seen) verdict { return c.verdictAt(s, c.Now()) }

// verdictAt is verdict for a caller that has just read the clocks.
func (c *Client) verdictAt(s *seen, now clock.Instant) (v verdict) {
	r := &s.Record
	switch {
	case c.judges:
		return verdict{latest: s.at.Add(c.opts.Drift.WaitRemote(s.Left)), ends: s.Left, over: s.Left < 0}
	case c.onOwnClocks(s):
		v.latest = r.Expiry
	case c.local != nil && c.local.Gone(r.Domain) && !r.HeldOn(): // a name that is held on needs no holder
		return verdict{latest: s.at, ends: 0, over: true, domainEnded: true}
	default:
		v.latest, v.remote = c.countSilence(s).latest, true
	}
	v.ends = now.Until(v.latest)
	v.over = v.ends < 0 // strictly past on both clocks
	return v
}

// onOwnClocks reports whether a record was written on the very clocks that this client reads. Its domain says
// so, with one exception. A write that lies ahead of a later read was made on other clocks under the same
// domain, such as those of a machine that was cloned with its memory. Such a record is judged as that of
// another machine for as long as it has this op, even when the clocks here have passed the write.
func (c *Client) onOwnClocks(s *seen) bool {
	r := &s.Record
	if !r.Domain.Same(c.domain) {
		return false
	}
	if s.at.Until(r.Written) > 0 { // on either clock
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, counting := c.observations[r.Name]
	return !counting || k.op != r.Op
}

// countSilence returns the observation of a record of another domain. It begins one if the record has a new op.
//
// Why it is safe to act once both clocks here are past the latest end:
//
//   - The writer's clocks had reached r.Written when the op was first seen.
//   - One of the two clocks here has a rate within the drift bound. It shows that at least span/(1−ρ) of real
//     time has passed since.
//   - So one of the writer's two clocks, the one within the bound, has advanced by more than span and is past
//     r.Expiry. No process there relies on the lease then.
func (c *Client) countSilence(s *seen) observation {
	r := &s.Record
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.observations[r.Name]
	if ok && k.op == r.Op {
		return k
	}
	if !ok && len(c.observations) >= maxObservations {
		for other := range c.observations { // any of them: its count starts over at the next read
			delete(c.observations, other)
			break
		}
	}
	span := r.Written.Until(r.Expiry)
	k = observation{
		op: r.Op, token: r.Token, span: span, first: s.at,
		latest: s.at.Add(c.opts.Drift.WaitRemote(span)),
		asked:  ok && k.token == r.Token && k.asked,
	}
	c.observations[r.Name] = k
	return k
}

// forget drops the observation of a name that no other domain holds.
func (c *Client) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.observations, name)
}

// infer adopts an end that was inferred in another way, if it is sooner.
func (c *Client) infer(name string, op Op, latest clock.Instant) {
	now := c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.observations[name]
	if !ok || k.op != op || now.Until(latest) >= now.Until(k.latest) {
		return
	}
	// The instant is adopted as a whole, never clock by clock: only over one whole count is one of the two
	// clocks known to be within the bound.
	k.latest = latest
	c.observations[name] = k
}

// fullVerdict returns how long a lease may still last. If it may last, it asks the store for evidence that it
// has expired. A client that waits does not ask for each renewal of the holder. It asks once for each tenure,
// and again when the holder has been silent for longer than a living one would be.
func (c *Client) fullVerdict(ctx context.Context, s *seen, waits bool) verdict {
	v := c.verdict(s)
	if v.over || !v.remote {
		return v
	}
	k := c.countSilence(s)
	if waits && k.asked && c.Now().Elapsed(k.first) < k.span/2 {
		return v
	}
	c.askObservation(ctx, s.Record.Name, k)
	c.askClock(ctx, &s.Record)
	return c.verdict(s)
}

// askObservation stores the first observation, and continues from an earlier one of this domain. If the store
// fails, the next call does it.
func (c *Client) askObservation(ctx context.Context, name string, k observation) {
	if c.privateDomain || k.kept {
		return
	}
	first, err := c.store.Observe(ctx, name, c.domain, k.op, k.first)
	if err != nil {
		return
	}
	if c.Now().Until(first) <= 0 { // a later instant would not come from this domain
		c.infer(name, k.op, first.Add(c.opts.Drift.WaitRemote(k.span)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.observations[name]; ok && now.op == k.op {
		now.kept, now.asked = true, true
		c.observations[name] = now
	}
}

// askClock infers the end from the clock record of the writer's domain.
//
// Why that is safe: the clocks of the domain had reached the acknowledged instant before the read of it was
// answered, no matter which process wrote it and when that arrived. So that read is an observation like that of
// the record, and only the rest of the promise has to pass. The argument is that of [Client.countSilence], with
// the acknowledged instant instead of r.Written. The result is one more upper bound, and the sooner of two
// upper bounds is one.
func (c *Client) askClock(ctx context.Context, r *Record) {
	if c.clocks == nil || r.Domain == clock.UnknownDomain || r.Domain == c.domain { // two clocks may bear one's own domain
		return
	}
	reached, ok, err := c.clocks.Acknowledged(ctx, r.Domain)
	if err != nil || !ok {
		return
	}
	c.infer(r.Name, r.Op, c.Now().Add(c.opts.Drift.WaitRemote(reached.Until(r.Expiry))))
}

// Assess takes in the record that a [Standing] shows, as if the client had read it, and continues the count
// from there. free reports whether the name can be claimed, as far as this client knows. If knows is true, the
// name becomes free at ends, on the clocks of [Client.Now], unless a client writes to its record. A record that
// cannot be read counts as free for the head of the queue: the head's claim reports what is wrong with it.
// Assess sets the name in a record that has none.
func (c *Client) Assess(ctx context.Context, s *Standing) (free bool, ends clock.Instant, knows bool) {
	r := &s.Found.Record
	if r.Name == "" {
		r.Name = s.Name
	}
	if s.Err != nil || check(s.Name, r) != nil {
		return s.Ahead == 0, ends, false
	}
	if !r.Held() {
		c.forget(s.Name)
		if s.Ahead == 0 && r.Exists() {
			left := *r
			c.rememberReleased(&left)
		}
		return true, ends, false
	}
	known := &seen{Found: s.Found, at: c.Now()}
	v := c.verdict(known)
	if s.Ahead == 0 { // only the head, which follows the holder, needs all evidence
		v = c.fullVerdict(ctx, known, true)
	}
	return v.over && len(r.Pins) == 0, v.latest, len(r.Pins) == 0
}

// KeepObservation stores since when this client has seen the holder of the name silent. Another process of this
// machine can then continue the count.
func (c *Client) KeepObservation(ctx context.Context, name string) error {
	if err := backend.CheckName(name); err != nil {
		return err
	}
	c.mu.Lock()
	k, ok := c.observations[name]
	c.mu.Unlock()
	if !ok || k.kept || c.privateDomain {
		return nil
	}
	_, err := c.store.Observe(ctx, name, c.domain, k.op, k.first)
	return err
}

// Refresh begins to count, for all names, how long their holders have been silent, and stores these
// observations.
func (c *Client) Refresh(ctx context.Context) error {
	return c.each(ctx, "", func(page []seen) error {
		for i := range page {
			s := &page[i]
			if s.Err != nil || !s.Record.Held() {
				continue
			}
			if v := c.verdict(s); !v.remote || v.over {
				continue
			}
			if err := c.KeepObservation(ctx, s.Record.Name); err != nil {
				return err
			}
		}
		return nil
	})
}
