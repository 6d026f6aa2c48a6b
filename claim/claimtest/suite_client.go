package claimtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

// manualClocks are clocks that a test moves by hand.
type manualClocks struct {
	mu   sync.Mutex
	hand *clock.Manual
}

// newManualClocks returns clocks that show at, so that machines differ.
func newManualClocks(at time.Duration) *manualClocks {
	return &manualClocks{hand: clock.NewManual(clock.Instant{Raw: int64(at), Boot: -int64(at)})}
}

func (h *manualClocks) Now() clock.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hand.Now()
}

func (h *manualClocks) Moved() <-chan struct{} { return nil }

func (h *manualClocks) pass(raw, boot time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hand.AdvanceBy(raw, boot)
}

// actor is a process that leases names.
type actor struct {
	*suite
	*claim.Client
	*manualClocks
	domain  clock.Domain
	holder  backend.Holder
	network *Network
}

// ttl is the TTL of every claim. No test waits for it.
const ttl = 10 * time.Second

// actor returns a process on a machine of its own, with the name of its holder.
func (s *suite) actor(who string) *actor {
	s.Helper()
	return s.actorOn(who, s.open(), newManualClocks(time.Duration(len(who))*time.Hour), clock.Domain("machine of "+who))
}

// onSameMachine returns another process of the same machine.
func (a *actor) onSameMachine(who string) *actor {
	a.Helper()
	return a.actorOn(who, a.open(), a.manualClocks, a.domain)
}

func (s *suite) actorOn(who string, store claim.Store, h *manualClocks, d clock.Domain) *actor {
	s.Helper()
	n := Faulty(store)
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		s.must("Close", n.Close(ctx)) // which waits for the calls under way
	})
	c, err := claim.NewClient(n, claim.Options{Clock: h, Domain: d, Acknowledge: time.Second})
	if err != nil {
		s.Fatal(err)
	}
	return &actor{suite: s, Client: c, manualClocks: h, domain: d, network: n, holder: backend.Holder{
		ID: who, Card: backend.Card{Host: "host of " + who, PID: 4711, Started: time.Unix(1700000000, 0).UTC(), Text: "text of " + who}}}
}

// Now returns what the machine's clocks show.
func (a *actor) Now() clock.Instant { return a.manualClocks.Now() }

func (a *actor) request(name string) claim.Request {
	return claim.Request{Name: name, ID: backend.ID(claim.NewOp()), Holder: a.holder, TTL: ttl}
}

// try claims a name.
func (a *actor) try(name string) (*claim.Lease, error) {
	return a.Claim(a.Context(), a.request(name))
}

// take claims a name that is free.
func (a *actor) take(name string) *claim.Lease {
	a.Helper()
	before := a.Now()
	l, err := a.try(name)
	if err != nil {
		a.Fatalf("%s claims %s: %v", a.holder.ID, name, err)
	}
	if l.Token() == 0 || l.Name() != name || l.TTL() != ttl || !before.Before(l.Until()) {
		a.Fatalf("%s claims %s, and has token %d until %v with a TTL of %v", a.holder.ID, name, l.Token(), l.Until(), l.TTL())
	}
	return l
}

// refused claims a held name.
func (a *actor) refused(name string, by *claim.Lease) {
	a.Helper()
	l, err := a.try(name)
	var held *backend.HeldError
	if !errors.As(err, &held) || l != nil {
		a.Fatalf("%s claims %s, which %s holds: %v", a.holder.ID, name, by.Holder(), err)
	}
	if held.Name != name || held.Holder.ID != by.Holder() || held.Holder.Card.Text == "" || held.Token != by.Token() {
		a.Errorf("the refusal shows the holder of %s as %+v", name, held)
	}
}

// keeps prolongs a lease that lasts.
func (a *actor) keeps(l *claim.Lease) {
	a.Helper()
	if err := a.Extend(a.Context(), l, 0); err != nil {
		a.Fatalf("%s extends %s: %v", a.holder.ID, l.Name(), err)
	}
	if want := a.Now().Add(ttl); l.Until() != want {
		a.Errorf("%s extends %s until %v, and not %v", a.holder.ID, l.Name(), l.Until(), want)
	}
}

// loses prolongs a lease that has ended.
func (a *actor) loses(l *claim.Lease) {
	a.Helper()
	if err := a.Extend(a.Context(), l, 0); !errors.Is(err, backend.ErrLost) {
		a.Errorf("%s extended the lease of %s, which had ended, and got %v, not ErrLost", a.holder.ID, l.Name(), err)
	}
}

func (a *actor) gives(l *claim.Lease) {
	a.Helper()
	if err := a.Release(a.Context(), l); err != nil {
		a.Fatalf("%s releases %s: %v", a.holder.ID, l.Name(), err)
	}
}

// is fails unless an error is of this kind.
func (s *suite) is(what string, err, kind error) {
	s.Helper()
	if !errors.Is(err, kind) {
		s.Errorf("%s: %v, and not %v", what, err, kind)
	}
}

// must fails if there is an error.
func (s *suite) must(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// grows fails unless a token is larger than an earlier one.
func (s *suite) grows(before, after backend.Token) {
	s.Helper()
	if after <= before {
		s.Errorf("token %d came after %d", after, before)
	}
}
