package claimtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

var faultTests = []test{
	{"LostAnswers", "", testLostAnswers},
	{"LostRequests", "", testLostRequests},
	{"RepeatedRequestsDoNothing", "", testRepeatedRequests},
	{"LateClaim", "", testLateClaim},
	{"UnansweredRenewalKeepsTheDeadline", "", testUnansweredRenewal},
	{"StaleReads", "", testStaleReads},
}

// A lost answer is found: the write counts, and is not done again.
func testLostAnswers(s *suite) {
	s.lossy(Fault{LoseAnswer: true})
}

// A lost request is sent again.
func testLostRequests(s *suite) {
	s.lossy(Fault{LoseRequest: true})
}

// A request that arrives a second time does nothing.
func testRepeatedRequests(s *suite) {
	s.lossy(Fault{Twice: time.Millisecond})
}

// lossy applies a fault to the first write of each of a holder's calls.
func (s *suite) lossy(f Fault) {
	s.Helper()
	a, b := s.actor("a"), s.actor("other")
	wrong := func() { a.network.Inject(Call{Method: Swap}, 1, f) }
	var last backend.Token
	for range 3 {
		wrong()
		l := a.take("jobs/x")
		if l.Token() != max(last+2, 1) && last != 0 {
			s.Errorf("token %d came after %d: something was done twice", l.Token(), last)
		}
		last = l.Token()
		b.refused("jobs/x", l)
		wrong()
		a.pass(time.Second, time.Second)
		a.keeps(l)
		wrong()
		s.must("Announce", a.Announce(s.Context(), l, "still here"))
		wrong()
		a.gives(l)
	}
	s.grows(last, b.take("jobs/x").Token())
	s.must("Close", a.network.Close(s.Context())) // which waits for the second arrivals
	if state, err := b.Get(s.Context(), "jobs/x"); err != nil || state.Record.Holder != "other" {
		s.Errorf("in the end the name is held by %q, %v", state.Record.Holder, err)
	}
}

// firstDelayed delays the first write, and lets its caller give up.
type firstDelayed struct {
	claim.Store
	giveUp func()
	kept   *claim.Swap
}

func (l *firstDelayed) Swap(ctx context.Context, w claim.Swap) (bool, error) {
	if l.kept != nil {
		return l.Store.Swap(ctx, w)
	}
	l.kept = &w
	l.giveUp()
	return false, fmt.Errorf("%w: %w", backend.ErrUnknownOutcome, context.Canceled)
}

// A claim that arrives when its caller no longer waits ends no tenure of another client.
func testLateClaim(s *suite) {
	for _, before := range []string{"never held", "held before"} {
		name := "jobs/" + before
		store := &firstDelayed{Store: s.open()}
		a, b := s.actorOn("a", store, newManualClocks(0), "machine of a"), s.actor("other")
		if before == "held before" {
			b.gives(b.take(name))
		}
		ctx, cancel := context.WithCancel(s.Context())
		store.giveUp = cancel
		l, err := a.Claim(ctx, a.request(name))
		if !errors.Is(err, context.Canceled) || errors.Is(err, backend.ErrUnknownOutcome) != (l != nil) {
			s.Errorf("a claim that is late: %v, %v", l, err)
		}
		// If the name has a record, the claim itself is late.
		if before == "held before" && l == nil {
			s.Errorf("a claim that is late is reported as failed: %v", err)
		}
		next := b.take(name)
		if done, err := store.Swap(s.Context(), *store.kept); done || err != nil {
			s.Errorf("a write that is late was done: %v, %v", done, err)
		}
		b.keeps(next)
		s.actor("a third").refused(name, next)
	}
}

// Without an answer the old deadline stands, and the lease is not lost.
func testUnansweredRenewal(s *suite) {
	a := s.actor("a")
	l := a.take("jobs/x")
	until := l.Until()
	a.pass(time.Second, time.Second)
	for _, f := range []Fault{{LoseRequest: true}, {LoseAnswer: true}, {Err: backend.ErrUnavailable}} {
		heal := a.network.Inject(Call{}, 0, f)
		err := a.Extend(s.Context(), l, 0)
		if !errors.Is(err, backend.ErrUnknownOutcome) && !errors.Is(err, backend.ErrUnavailable) {
			s.Errorf("without an answer: %v", err)
		}
		if l.Until() != until {
			s.Errorf("without an answer the lease is relied on until %v, and not %v", l.Until(), until)
		}
		heal()
	}
	a.keeps(l)
}

// Lists may be old: no decision rests on them alone.
func testStaleReads(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	b.network.Inject(Call{Method: List}, 0, Fault{Stale: true})
	a.gives(a.take("jobs/x"))
	for range 2 {
		if _, err := b.List(s.Context(), "", "", 10); err != nil {
			s.Fatal(err)
		}
	}
	l := a.take("jobs/x")
	b.refused("jobs/x", l)
	s.must("Refresh", b.Refresh(s.Context()))
	b.refused("jobs/x", l)
	a.keeps(l)
}
