package claimtest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var leaseTests = []test{
	{"ClaimExtendRelease", "", testLife},
	{"EndInOneDomain", "", testEndInOneDomain},
	{"EndInAnotherDomain", "", testEndInAnotherDomain},
	{"ShortProcessesContinueTheCount", "", testShortProcesses},
	{"Expire", "", testExpire},
	{"Pins", "", testPins},
	{"Resume", "", testResume},
	{"Revoke", "", testRevoke},
	{"Announce", "", testAnnounce},
	{"ExtendAll", "", testManyTogether},
	{"Marks", "", testMarks},
	{"Finish", "", testFinish},
	{"HeldOn", "", testHeldOn},
	{"Collect", "", testCollect},
	{"TokensAreAboveTheFloor", "", testAboveTheFloor},
	{"OneHoldsAtATime", "", testOneHoldsAtATime},
	{"CollectAmongClaims", "", testCollectAmongClaims},
	{"ClockRecords", Clocks, testClockRecords},
	{"StoreClock", Judge, testStoreClock},
}

func testLife(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	l := a.take("jobs/x")
	b.refused("jobs/x", l)
	a.refused("jobs/x", l) // for every lease
	a.pass(ttl/2, ttl/2)
	a.keeps(l)
	state, err := b.Get(s.Context(), "jobs/x")
	if r := state.Record; err != nil || r.Holder != "a" || r.Token != l.Token() || r.TTL != ttl || r.Card != a.holder.Card || state.Over {
		s.Errorf("another client reads the lease as %+v, %v", state, err)
	}
	a.gives(l)
	a.gives(l)
	next := b.take("jobs/x")
	s.grows(l.Token()+1, next.Token()) // the end of a tenure takes a token too
	a.loses(l)
	a.gives(l)
	b.keeps(next)
	if state, err := a.Get(s.Context(), "jobs/x"); err != nil || len(state.Record.Past) != 1 || state.Record.Past[0].Why != backend.Released {
		s.Errorf("the past is %+v, %v", state.Record.Past, err)
	}
}

// Between processes of one machine a lease lasts until its very end, and no longer.
func testEndInOneDomain(s *suite) {
	a := s.actor("a")
	b := a.onSameMachine("b")
	l := a.take("jobs/x")
	b.refused("jobs/x", l)
	a.pass(ttl, ttl)
	b.refused("jobs/x", l) // at its end it still lasts
	a.pass(1, 0)
	b.refused("jobs/x", l) // past it on one of the two clocks
	a.pass(0, 1)
	next := b.take("jobs/x")
	s.grows(l.Token(), next.Token())
	a.loses(l)
}

// Other machines wait for as long as the writer's clocks may need, from their first read of the lease.
func testEndInAnotherDomain(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	l := a.take("jobs/x")
	wait := clock.Drift(clock.DefaultDrift).WaitRemote(ttl)
	a.pass(ttl*9/10, ttl*9/10) // which no other machine knows
	b.refused("jobs/x", l)
	b.pass(wait, wait)
	b.refused("jobs/x", l)
	b.pass(0, time.Hour) // suspended
	b.refused("jobs/x", l)
	a.keeps(l) // at the last moment: the count starts over
	b.pass(wait, wait)
	b.refused("jobs/x", l)
	b.pass(wait, wait)
	b.refused("jobs/x", l)
	b.pass(1, 1)
	next := b.take("jobs/x")
	s.grows(l.Token(), next.Token())
	a.loses(l)
}

// Processes that try once and end, one after another, continue the count of the first of them.
func testShortProcesses(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	l := a.take("jobs/x")
	wait := clock.Drift(clock.DefaultDrift).WaitRemote(ttl)
	for range 10 {
		b.onSameMachine("another").refused("jobs/x", l)
		b.pass(wait/10, wait/10)
	}
	b.pass(wait%10+1, wait%10+1)
	next := b.onSameMachine("the last").take("jobs/x")
	s.grows(l.Token(), next.Token())
}

func testExpire(s *suite) {
	a := s.actor("a")
	b := a.onSameMachine("b")
	s.is("Expire of what nobody ever held", b.Expire(s.Context(), "jobs/x"), backend.ErrInvalid)
	l := a.take("jobs/x")
	a.pass(ttl, ttl)
	s.is("Expire of what lasts", b.Expire(s.Context(), "jobs/x"), backend.ErrHeld)
	a.pass(1, 1)
	s.must("Expire", b.Expire(s.Context(), "jobs/x"))
	s.is("Expire of what has expired", b.Expire(s.Context(), "jobs/x"), backend.ErrInvalid)
	a.loses(l)
	s.grows(l.Token()+1, a.take("jobs/x").Token())
}

// Only its holder ends a tenure that is pinned.
func testPins(s *suite) {
	a := s.actor("a")
	b := a.onSameMachine("b")
	why := []string{everyCharacter, "a, b"}
	l := a.take("jobs/x")
	for _, w := range append(why, why...) {
		s.must("Pin", b.Pin(s.Context(), "jobs/x", w))
	}
	a.pass(2*ttl, 2*ttl)
	s.is("Expire of what is pinned", b.Expire(s.Context(), "jobs/x"), backend.ErrPinned)
	s.is("Revoke of what is pinned", b.Revoke(s.Context(), "jobs/x", 0, "x", true), backend.ErrPinned)
	b.refused("jobs/x", l)
	s.must("Unpin", a.Unpin(s.Context(), "jobs/x", why[0]))
	b.refused("jobs/x", l)
	a.keeps(l)
	a.gives(l)
	next := b.take("jobs/x")
	s.grows(l.Token(), next.Token())
	a.pass(2*ttl, 2*ttl)
	a.refused("jobs/x", next) // the next holder inherits the pin
	s.must("Unpin", a.Unpin(s.Context(), "jobs/x", why[1]))
	s.grows(next.Token(), a.take("jobs/x").Token())
}

func testResume(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	l := a.take("jobs/x")
	resume := func(t backend.Token) (*claim.Lease, error) {
		return b.Resume(s.Context(), "jobs/x", t, b.holder, backend.ID(claim.NewOp()))
	}
	_, err := resume(l.Token() + 1)
	s.is("Resume of another token", err, backend.ErrLost)
	next, err := resume(l.Token())
	s.must("Resume", err)
	if next.Token() != l.Token() {
		s.Errorf("resumed with token %d, and not %d", next.Token(), l.Token())
	}
	// The earlier promise may last as long as another machine must wait for its end.
	if wait := clock.Drift(clock.DefaultDrift).WaitRemote(ttl); b.Now().Remaining(next.Until()) < wait {
		s.Errorf("resumed for %v, though what was promised may last for %v", b.Now().Remaining(next.Until()), wait)
	}
	a.loses(l)
	a.gives(l) // a no longer owns it
	b.pass(time.Second, time.Second)
	s.must("Extend", b.Extend(s.Context(), next, 0))
	if b.Now().Remaining(next.Until()) < ttl {
		s.Errorf("%v after it was extended it is relied on for %v", ttl, b.Now().Remaining(next.Until()))
	}
	b.gives(next)
	_, err = resume(next.Token())
	s.is("Resume of what has ended", err, backend.ErrLost)
}

func testRevoke(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	l := a.take("jobs/x")
	s.is("Revoke of another token", b.Revoke(s.Context(), "jobs/x", l.Token()+1, "x", false), backend.ErrLost)
	s.must("Revoke", b.Revoke(s.Context(), "jobs/x", l.Token(), "it's \"over\"", false))
	a.loses(l)
	a.onSameMachine("again").refused("jobs/x", l) // until the promise has passed
	a.pass(ttl+1, ttl+1)
	next := a.onSameMachine("again").take("jobs/x")
	s.must("Revoke at once", b.Revoke(s.Context(), "jobs/x", 0, "now", true))
	s.grows(next.Token()+1, b.take("jobs/x").Token())
}

func testAnnounce(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	l := a.take("jobs/x")
	s.must("Announce", a.Announce(s.Context(), l, everyCharacter))
	if state, err := b.Get(s.Context(), "jobs/x"); err != nil || state.Record.Card.Text != everyCharacter || state.Record.Card.Host != a.holder.Card.Host {
		s.Errorf("after it was announced: %+v, %v", state.Record.Card, err)
	}
	a.keeps(l)
}

// Of many leases that are prolonged together, each gets its own result.
func testManyTogether(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	const many = 24
	var leases []*claim.Lease
	for i := range many {
		leases = append(leases, a.take(fmt.Sprintf("jobs/%02d", i)))
	}
	s.must("Revoke", b.Revoke(s.Context(), "jobs/07", 0, "now", true))
	s.must("Pin", b.Pin(s.Context(), "jobs/08", "it changes the record"))
	a.pass(ttl/2, ttl/2)
	told := make(map[int]int)
	s.must("ExtendAll", a.ExtendAll(s.Context(), leases, func(i int, err error) {
		if told[i]++; errors.Is(err, backend.ErrLost) != (i == 7) || err != nil && i != 7 {
			s.Errorf("of many, extension %d: %v", i, err)
		}
	}))
	for i, l := range leases {
		if told[i] != 1 {
			s.Errorf("extension %d was reported %d times", i, told[i])
		}
		if want := a.Now().Add(ttl); i != 7 && l.Until() != want {
			s.Errorf("%s was extended until %v, and not %v", l.Name(), l.Until(), want)
		}
	}
}

// Tokens do not start again when the tombstone of a name is removed.
func testCollect(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	last := make(map[string]backend.Token)
	for _, name := range []string{"jobs/x", "jobs/y"} {
		for range 3 {
			l := a.take(name)
			a.gives(l)
			last[name] = l.Token()
		}
	}
	held := a.take("jobs/held")
	s.must("Pin", a.Pin(s.Context(), "jobs/pinned", "kept"))
	removed, err := b.Collect(s.Context(), claim.Collection{})
	if s.must("Collect", err); removed != 2 {
		s.Errorf("%d records were removed, and not 2", removed)
	}
	if names := s.namesIn(s.open(), "", "", 10); len(names) != 2 {
		s.Errorf("after a collection there is %q", names)
	}
	a.keeps(held)
	for name, before := range last { // order: each name for itself
		s.grows(before+1, b.take(name).Token())
	}
}

// After the floor was raised every tenure has a token above it, whether its name has a record or not.
func testAboveTheFloor(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	a.gives(a.take("jobs/x"))
	held := a.take("jobs/held")
	const floor = 1 << 40
	got, err := b.RaiseFloor(s.Context(), floor)
	if s.must("RaiseFloor", err); got != floor {
		s.Errorf("the floor was raised to %d, and not %d", got, floor)
	}
	s.grows(floor, a.take("jobs/x").Token())
	s.grows(floor, b.take("jobs/y").Token())
	a.keeps(held) // a held name keeps its token
	a.gives(held)
	s.grows(floor, b.take("jobs/held").Token())
}

// claimTogether lets many claim and release one name at the same time, and checks each token while it is held.
func (s *suite) claimTogether(actors []*actor, name string, times int, meanwhile func(i int)) {
	s.Helper()
	var mu sync.Mutex
	holders, last, got := 0, backend.Token(0), 0
	together(len(actors), func(i int) {
		a := actors[i]
		for range times {
			if meanwhile != nil {
				meanwhile(i)
			}
			l, err := a.try(name)
			if errors.Is(err, backend.ErrHeld) || errors.Is(err, backend.ErrContention) {
				continue
			}
			if err != nil {
				s.Errorf("Claim: %v", err)
				return
			}
			mu.Lock()
			if holders++; holders != 1 {
				s.Errorf("%d hold %s", holders, name)
			}
			s.grows(last, l.Token())
			last, got = l.Token(), got+1
			holders--
			mu.Unlock()
			if err := a.Release(s.Context(), l); err != nil {
				s.Errorf("Release: %v", err)
				return
			}
		}
	})
	if got == 0 {
		s.Errorf("no client ever got %s", name)
	}
}

func (s *suite) crowd() []*actor {
	s.Helper()
	all := make([]*actor, racers)
	for i := range all {
		all[i] = s.actor(fmt.Sprintf("%*d", i+1, i))
	}
	return all
}

func testOneHoldsAtATime(s *suite) { s.claimTogether(s.crowd(), "jobs/x", rounds, nil) }

func testCollectAmongClaims(s *suite) {
	all := s.crowd()
	s.claimTogether(all, "jobs/x", rounds, func(i int) {
		if i%2 == 0 {
			return
		}
		if _, err := all[i].Collect(s.Context(), claim.Collection{}); err != nil {
			s.Errorf("Collect: %v", err)
		}
	})
}

// Proof that a machine's clocks have advanced shortens the wait for its earlier promise.
func testClockRecords(s *suite) {
	a, b := s.actor("a"), s.actor("other")
	drift := clock.Drift(clock.DefaultDrift)
	l, other := a.take("jobs/x"), a.take("jobs/y")
	a.pass(ttl*8/10, ttl*8/10)
	a.keeps(other)
	b.refused("jobs/x", l)
	wait := drift.WaitRemote(ttl * 2 / 10)
	b.pass(wait, wait)
	b.refused("jobs/x", l)
	b.pass(1, 1)
	b.take("jobs/x")
	b.refused("jobs/y", other)
}

// In store-clock mode a client that never saw a lease takes it as soon as it has ended.
func testStoreClock(s *suite) {
	open := func(who string) *actor {
		return s.actorOn(who, s.openIn(s.namespace, true), newManualClocks(time.Duration(len(who))*time.Hour), clock.Domain(who))
	}
	a := open("a")
	q := a.request("jobs/x")
	q.TTL = 700 * time.Millisecond
	before := time.Now()
	l, err := a.Claim(s.Context(), q)
	s.must("Claim", err)
	if relied, most := a.Now().Remaining(l.Until()), clock.Drift(clock.DefaultDrift).RelyRemote(q.TTL); relied > most || relied < most/2 {
		s.Errorf("of a TTL of %v is relied on %v, and %v are the most", q.TTL, relied, most)
	}
	for {
		next, err := open("fresh").try("jobs/x")
		if err == nil {
			s.grows(l.Token(), next.Token())
			break
		}
		s.is("a claim to what lasts", err, backend.ErrHeld)
		if time.Since(before) > q.TTL+s.config.Slack {
			s.Fatalf("a lease of %v has not ended after %v", q.TTL, time.Since(before))
		}
		time.Sleep(20 * time.Millisecond)
	}
	if early := time.Since(before); early < q.TTL {
		s.Errorf("a lease of %v was taken after %v", q.TTL, early)
	}
	a.loses(l)
}
