package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Request asks for a name.
type Request struct {
	Name string
	// ID is chosen at random for each request and becomes the incarnation of the tenure. Asking again with
	// the same one never makes two.
	ID     backend.ID
	Holder backend.Holder
	TTL    time.Duration
	// Waits says that this client will ask again until it gets the name. What it has seen of the holder is
	// then kept in the store only once for each tenure and when the holder seems to have fallen silent, not
	// with each of its renewals; call [Client.KeepObservation] when the waiting is given up.
	Waits bool
	// Alone says to leave a name that is free to those who have a ticket in its queue, if the store is a [Queuer].
	Alone bool
}

// Claim takes a name that is vacant, or whose lease is surely over and not pinned. Otherwise it returns a
// [*backend.HeldError], which is never decided from what was read before. Asking again with the same ID is told
// of the same tenure again. With [backend.ErrUnknownOutcome] it returns a lease too, which may be released, or
// claimed again with the same ID.
func (c *Client) Claim(ctx context.Context, q Request) (*Lease, error) {
	if err := backend.CheckName(q.Name); err != nil {
		return nil, err
	}
	if err := checkTTL(q.TTL); err != nil {
		return nil, err
	}
	l, err := c.handle(q.Name, q.Holder, q.ID)
	if err != nil {
		return nil, err
	}
	a := &claiming{lease: l, request: q}
	e := c.patient(q.Name)
	e.decide, e.wrote, e.open = a.decide, a.wrote, l.doubtfulOps()
	var known *seen
	if len(e.open) == 0 { // else it has to be read what became of that
		known = c.takeReleased(q.Name)
	}
	e.fromMemory, e.ifNoTicket = known != nil, q.Alone
	err = e.run(yielding(ctx, q.TTL), known)
	if err != nil && a.begun && !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrHeld) {
		err = unknown(q.Name, err) // the name was taken, and has to be given back
	}
	return c.answer(l, e, err)
}

// handle returns the lease for a claim, which is that of an earlier one with the same id if nobody knows what
// became of it.
func (c *Client) handle(name string, h backend.Holder, id backend.ID) (*Lease, error) {
	if err := backend.CheckHolder(h); err != nil {
		return nil, err
	}
	if id == (backend.ID{}) {
		return nil, fmt.Errorf("%w: a claim without an id", backend.ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.unsettled[id]
	if l == nil {
		return &Lease{client: c, name: name, holder: h.ID, id: id}, nil
	}
	if l.name != name || l.holder != h.ID {
		return nil, fmt.Errorf("%w: a claim to %s for %s has the id of one to %s for %s", backend.ErrInvalid, name, h.ID, l.name, l.holder)
	}
	return l, nil
}

// answer returns what a claim or an resumption has come to.
func (c *Client) answer(l *Lease, e *effort, err error) (*Lease, error) {
	l.setDoubt(e.open)
	doubt := errors.Is(err, backend.ErrUnknownOutcome)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsettled, l.id)
	if doubt {
		if len(c.unsettled) >= maxUnsettled {
			for id := range c.unsettled { // any: its lease still knows
				delete(c.unsettled, id)
				break
			}
		}
		c.unsettled[l.id] = l
	}
	if err != nil && !doubt {
		return nil, err
	}
	return l, err
}

// claiming decides for a claim.
type claiming struct {
	lease   *Lease
	request Request
	begun   bool // an earlier write of this claim has taken the name
}

func (a *claiming) decide(ctx context.Context, s *seen) (*plan, error) {
	c, r, q := a.lease.client, &s.Record, &a.request
	if r.Incarnation == q.ID {
		return a.prolongOwn(s)
	}
	behind := q.Alone && s.Waiting
	if !r.Held() {
		c.forget(q.Name)
		if behind {
			return nil, heldError(r, 0)
		}
		return a.take(s, r.Past)
	}
	if len(r.Pins) > 0 {
		return nil, heldError(r, 0)
	}
	v := c.fullVerdict(ctx, s, q.Waits)
	if !v.over || behind {
		return nil, heldError(r, max(v.ends, 1))
	}
	why, note := endOf(r)
	p, err := a.take(s, c.pastWith(r, why, note))
	if err == nil {
		p.ended, p.adds = c.judges, true
	}
	return p, err
}

// again prolongs the tenure that an earlier write of this claim has begun.
func (a *claiming) prolongOwn(s *seen) (*plan, error) {
	c, r, q := a.lease.client, &s.Record, &a.request
	switch {
	case r.Held() && r.Holder != q.Holder.ID:
		return nil, fmt.Errorf("%w: a claim to %s for %s has the id of one for %s", backend.ErrInvalid, q.Name, q.Holder.ID, backend.Printable(r.Holder))
	case !r.Held():
		return nil, fmt.Errorf("%w: this claim to %s has ended", backend.ErrLost, q.Name)
	case r.Revoked != "":
		return nil, fmt.Errorf("%w: %s was revoked: %s", backend.ErrLost, q.Name, backend.Printable(r.Revoked))
	}
	if err := a.lease.ended(); err != nil {
		return nil, err
	}
	a.begun = true
	return &plan{record: c.prolong(s, q.TTL, a.lease.Until()), extends: true}, nil
}

// take makes the claimer the holder.
func (a *claiming) take(s *seen, past []backend.Tenure) (*plan, error) {
	token, err := nextToken(s)
	if err != nil {
		return nil, err
	}
	c, q := a.lease.client, &a.request
	now := c.Now()
	return &plan{owner: true, keeps: !s.Record.Held(), record: Record{
		Name: q.Name, Holder: q.Holder.ID, Token: token, Incarnation: q.ID,
		Domain: c.domain, Written: now, Expiry: now.Add(q.TTL), TTL: q.TTL,
		Pins: slices.Clone(s.Record.Pins), Card: q.Holder.Card, Since: c.Wall(), Past: past,
	}}, nil
}

func (a *claiming) wrote(r *Record) { a.lease.confirm(r, a.request.TTL) }

// leave remembers how this client has left a name that it held, if it can make use of that.
func (c *Client) rememberReleased(r *Record) {
	if !c.comparesFloor || r.Held() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.released) >= maxReleased {
		for other := range c.released { // any: it is read when it is next claimed
			delete(c.released, other)
			break
		}
	}
	c.released[r.Name] = r
}

// leftAs returns how this client has left a name, or nil, and forgets it: what is done next changes it. A claim may
// be decided from that, since it is written only if the record still has the same op and, should a floor have been
// raised meanwhile, only if the token is above that. A refusal may not.
func (c *Client) takeReleased(name string) *seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.released[name]
	if !ok {
		return nil
	}
	delete(c.released, name)
	return &seen{Found: Found{Record: *r}} // nobody judges when what is vacant ends
}

// next returns the token of the next tenure.
func nextToken(s *seen) (backend.Token, error) {
	last := max(s.Record.Token, s.Floor)
	if last >= maxToken {
		return 0, fmt.Errorf("%w: the tokens of %s are used up at %d: lease another name, or use a new namespace", backend.ErrInvalid, s.Record.Name, last)
	}
	return last + 1, nil
}

// prolong returns the record with the promise of ttl from now. It never shortens what was promised before: the
// new end is, on both clocks, no sooner than the latest at which the old one may be, and so a waiter for the new one
// has waited for both. relied is until when the caller relies on it already; zero is not at all.
func (c *Client) prolong(s *seen, ttl time.Duration, relied clock.Instant) Record {
	r := s.Record
	v := c.verdict(s)
	now := c.Now()
	r.Domain, r.Written, r.TTL, r.Expiry = c.domain, now, ttl, now.Add(ttl)
	if c.judges {
		// The store counts from this write, so it is the length that must not undercut.
		r.TTL = max(ttl, s.Left)
		if relied != (clock.Instant{}) { // which clocks may not have reached yet
			r.TTL = max(r.TTL, c.opts.Drift.WaitRemote(now.Until(relied)))
		}
		r.Expiry = now.Add(r.TTL)
	} else if s.Record.Held() {
		r.Expiry = later(r.Expiry, v.latest)
	}
	return r
}

func heldError(r *Record, ends time.Duration) error {
	return &backend.HeldError{Name: r.Name, Holder: backend.Holder{ID: r.Holder, Card: r.Card}, Token: r.Token, Ends: ends}
}

// endOf says why a lease that is over has ended.
func endOf(r *Record) (backend.Reason, string) {
	if r.Revoked != "" {
		return backend.Revoked, r.Revoked
	}
	return backend.Expired, ""
}

// briefText is how much of a card's text is remembered of past tenures, in bytes, so that records stay
// small: each renewal writes one.
const briefText = 256

// past returns the past of a record whose tenure ends now.
func (c *Client) pastWith(r *Record, why backend.Reason, note string) []backend.Tenure {
	h := backend.Holder{ID: r.Holder, Card: r.Card}
	h.Card.Text, note = brief(h.Card.Text), brief(note)
	past := make([]backend.Tenure, 0, min(MaxPast, len(r.Past)+1))
	past = append(past, backend.Tenure{Token: r.Token, Holder: h, From: r.Since, To: c.Wall(), Why: why, Note: note})
	return append(past, r.Past[:min(len(r.Past), MaxPast-1)]...)
}

func brief(text string) string {
	if len(text) <= briefText {
		return text
	}
	end := briefText
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimSpace(text[:end]) + "…"
}
