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

// Request is a claim to a name.
type Request struct {
	Name string
	// ID is chosen at random for each request and becomes the incarnation of the tenure. Repeating a claim with
	// the same ID never makes two tenures.
	ID     backend.ID
	Holder backend.Holder
	TTL    time.Duration
	// Waits says that this client will ask again until it gets the name. Its observation of the holder is then
	// stored only once for each tenure, and when the holder seems to have fallen silent, instead of with each
	// renewal. Call [Client.KeepObservation] when the client stops waiting.
	Waits bool
	// Alone says to leave a free name to processes that have a ticket in its queue, if the store is a [Queuer].
	Alone bool
}

// Claim takes a name that is vacant, or whose lease has certainly expired and is not pinned. Otherwise it
// returns a [*backend.HeldError], which never rests on an earlier read. Claiming again with the same ID returns
// the same tenure. With [backend.ErrUnknownOutcome] it returns a lease too, which may be released, or claimed
// again with the same ID.
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
	if len(e.open) == 0 { // otherwise a read has to show what became of that
		known = c.takeReleased(q.Name)
	}
	e.fromMemory, e.ifNoTicket = known != nil, q.Alone
	err = e.run(yielding(ctx, q.TTL), known)
	if err != nil && a.begun && !errors.Is(err, backend.ErrLost) && !errors.Is(err, backend.ErrHeld) {
		err = unknown(q.Name, err) // the name was taken, and has to be released
	}
	return c.answer(l, e, err)
}

// handle returns the lease for a claim. It is the lease of an earlier claim with the same id if the outcome of
// that claim is unknown.
func (c *Client) handle(name string, h backend.Holder, id backend.ID) (*Lease, error) {
	if err := backend.CheckHolder(h); err != nil {
		return nil, err
	}
	if id == (backend.ID{}) {
		return nil, fmt.Errorf("%w: the claim has no id: choose one at random", backend.ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.unsettled[id]
	if l == nil {
		return &Lease{client: c, name: name, holder: h.ID, id: id}, nil
	}
	if l.name != name || l.holder != h.ID {
		return nil, fmt.Errorf("%w: the claim to %s for %s has the id of another claim, to %s for %s: choose a new id", backend.ErrInvalid, name, h.ID, l.name, l.holder)
	}
	return l, nil
}

// answer returns the result of a claim or a resumption, and remembers its lease while the outcome is unknown.
func (c *Client) answer(l *Lease, e *effort, err error) (*Lease, error) {
	l.setDoubt(e.open)
	doubt := errors.Is(err, backend.ErrUnknownOutcome)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsettled, l.id)
	if doubt {
		if len(c.unsettled) >= maxUnsettled {
			for id := range c.unsettled { // any of them: its lease still knows the ops
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

// claiming decides for one claim.
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
	why, note := r.EndsAs()
	p, err := a.take(s, c.pastWith(r, why, note))
	if err == nil {
		p.ended, p.adds = c.judges, true
	}
	return p, err
}

// prolongOwn prolongs the tenure that an earlier write of this claim has begun.
func (a *claiming) prolongOwn(s *seen) (*plan, error) {
	c, r, q := a.lease.client, &s.Record, &a.request
	switch {
	case r.Held() && r.Holder != q.Holder.ID:
		return nil, fmt.Errorf("%w: the claim to %s for %s has the id of a claim for %s: choose a new id", backend.ErrInvalid, q.Name, q.Holder.ID, backend.Printable(r.Holder))
	case !r.Held():
		return nil, fmt.Errorf("%w: this claim to %s has ended", backend.ErrLost, q.Name)
	case r.Revoked != "":
		return nil, fmt.Errorf("%w: %s %s", backend.ErrLost, q.Name, r.refusal())
	}
	if err := a.lease.ended(); err != nil {
		return nil, err
	}
	a.begun = true
	return &plan{record: c.prolong(s, c.Now(), q.TTL, a.lease.Until()), extends: true}, nil
}

// take plans the write that makes the claimer the holder.
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
		Pins: slices.Clone(s.Record.Pins), Card: q.Holder.Card, Since: c.Wall(), Past: past, Mark: s.Record.Mark,
	}}, nil
}

func (a *claiming) wrote(r *Record) { a.lease.confirm(r, a.request.TTL, a.lease.client.Now()) }

// rememberReleased remembers the record of a name that this client has released, if a later claim can use it.
func (c *Client) rememberReleased(r *Record) {
	if !c.comparesFloor || r.Held() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.released) >= maxReleased {
		for other := range c.released { // any of them: its next claim reads first
			delete(c.released, other)
			break
		}
	}
	c.released[r.Name] = r
}

// takeReleased returns the record as this client has left it, or nil, and forgets it: the next write changes
// it. A claim may be decided from that record. It is written only if the record still has the same op and,
// should a floor have been raised meanwhile, only if the token is above the floor. A refusal may not be decided
// from it.
func (c *Client) takeReleased(name string) *seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.released[name]
	if !ok {
		return nil
	}
	delete(c.released, name)
	return &seen{Found: Found{Record: *r}} // the store's clock judges only held records
}

// nextToken returns the token of the next tenure.
func nextToken(s *seen) (backend.Token, error) {
	last := max(s.Record.Token, s.Floor)
	if last >= maxToken {
		return 0, fmt.Errorf("%w: the tokens of %s are used up at %d: lease another name, or use a new namespace", backend.ErrInvalid, s.Record.Name, last)
	}
	return last + 1, nil
}

// prolong returns the record with a promise of ttl from now, which the clocks show before the record is written. It never shortens an earlier promise: on both
// clocks, the new end is no sooner than the latest possible old end. So a client that waited for the new end
// has waited for both. relied is the instant until which the caller relies on the lease already; zero means
// that it does not.
func (c *Client) prolong(s *seen, now clock.Instant, ttl time.Duration, relied clock.Instant) Record {
	r := s.Record
	v := c.verdictAt(s, now)
	r.Domain, r.Written, r.TTL, r.Expiry = c.domain, now, ttl, now.Add(ttl)
	if c.judges {
		// The store counts from this write, so the length must not undercut the earlier promise.
		r.TTL = max(ttl, s.Left)
		if relied != (clock.Instant{}) { // the clocks may not have reached it yet
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

// briefText is how many bytes of a card's text and of a note are kept for past tenures. Records stay small,
// because each renewal writes one.
const briefText = 256

// pastWith returns the past of a record, with the tenure that ends now in front.
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
