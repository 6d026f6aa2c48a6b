package claim_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Tests of how other processes count, and when they may act.

// Processes of one machine that each live shorter than the lease get the name all the same: each continues the
// count of the one before.
func TestShortLivedProcessesContinueTheCount(t *testing.T) {
	w := newWorld(t)
	dead, machine := w.actor("dead", time.Hour), w.actor("machine", 0)
	dead.hold("job", 30*time.Second)
	w.pass(5 * time.Second)
	for i := range 4 {
		p := machine.onSameMachine(fmt.Sprint("cron", i))
		p.refused("job")
		w.pass(10 * time.Second)
	}
	l, err := machine.onSameMachine("cron").try("job", time.Minute)
	w.is("the last", err, nil)
	same(w, "token", l.Token(), 2)
}

// A renewal is a new op, which restarts the count.
func TestRenewalRestartsTheCount(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	for range 10 {
		b.refused("job")
		w.pass(20 * time.Second)
		a.extend(l, 0)
	}
	b.refused("job")
	w.pass(29 * time.Second)
	b.onSameMachine("c").refused("job")
}

// A long waiter does not write with each renewal of the holder. It stores what the next process needs when the
// holder falls silent, or when the waiter leaves.
func TestWaiterStoresObservationsSeldom(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	ask := func() {
		t.Helper()
		q := b.request("job", time.Minute)
		q.Waits = true
		_, err := b.Claim(t.Context(), q)
		w.is("b asks", err, backend.ErrHeld)
	}
	ask()
	same(w, "the first time costs", b.wire.counted(), "map[get:1 observe:1]")
	for range 10 {
		w.pass(10 * time.Second)
		a.extend(l, 0)
		ask()
	}
	same(w, "ten renewals cost", b.wire.counted(), "map[get:10]")
	w.pass(14 * time.Second)
	ask()
	same(w, "a late one costs", b.wire.counted(), "map[get:1]")
	w.pass(2 * time.Second) // 16 s after the op was first seen
	ask()
	ask()
	same(w, "the silence costs", b.wire.counted(), "map[get:2 observe:1]")
	w.pass(14*time.Second + time.Millisecond)
	b.onSameMachine("next").hold("job", time.Minute)

	a.is("release", b.Release(t.Context(), b.hold("other", time.Minute)), nil)
	a.hold("other", 30*time.Second)
	ask2 := func() {
		q := b.request("other", time.Minute)
		q.Waits = true
		_, err := b.Claim(t.Context(), q)
		w.is("b asks", err, backend.ErrHeld)
	}
	ask2()
	b.wire.counted()
	w.is("b leaves", b.KeepObservation(t.Context(), "other"), nil)
	same(w, "to leave costs, if it is known already", b.wire.counted(), "map[]")
	w.is("b leaves what it never saw", b.KeepObservation(t.Context(), "never"), nil)
}

// KeepObservation stores what only this process knows.
func TestKeptObservationServesTheNextProcess(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.hold("job", 30*time.Second)
	b.state("job") // a read, which stores nothing
	same(w, "to look costs", b.wire.counted(), "map[get:1]")
	w.pass(20 * time.Second)
	w.is("observe", b.KeepObservation(t.Context(), "job"), nil)
	w.pass(10*time.Second + time.Millisecond)
	b.onSameMachine("next").hold("job", time.Minute)
}

// Refresh begins to count for all names at once.
func TestRefreshBeginsAllCounts(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	for i := range 700 { // more than a page
		a.hold(fmt.Sprintf("job%04d", i), 30*time.Second)
	}
	w.is("release", b.Release(t.Context(), b.hold("free", time.Minute)), nil)
	b.hold("own", time.Minute)
	b.wire.counted()
	w.is("refresh", b.Refresh(t.Context()), nil)
	same(w, "it costs", b.wire.counted(), "map[observe:700]")
	w.pass(30*time.Second + time.Millisecond)
	for _, name := range []string{"job0000", "job0699"} {
		b.onSameMachine("next").hold(name, time.Minute)
	}
}

// On a store of one machine, a lease of a domain that has ended expires at once.
func TestLeaseOfAnEndedBootExpiresAtOnce(t *testing.T) {
	w := newWorld(t, claimtest.WithGone(func(d clock.Domain) bool { return d == "boot1" }))
	one := w.actor("boot1", time.Hour)
	l := one.hold("job", time.Hour)
	two := w.actor("boot2", time.Second)
	s := two.state("job")
	if !s.Over || s.Ends != 0 {
		t.Errorf("%+v", s)
	}
	same(w, "token", two.hold("job", time.Minute).Token(), l.Token()+1)
}

// The processes of one domain share its clocks, and so the judgement.
func TestProcessOfTheSameDomainJudgesExactly(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.hold("job", 30*time.Second)
	w.pass(29 * time.Second)
	b := a.onSameMachine("b")
	same(w, "what is left", b.refused("job"), time.Second)
	same(w, "to be refused costs", b.wire.counted(), "map[get:1]")
	w.pass(time.Second + 1)
	b.hold("job", time.Minute)
}

// Two machines have the same domain: one was cloned with its memory, or its kernel reuses a boot number. A
// record that was written ahead of the reader's clocks is not judged by them, on whichever of the two clocks it
// lies ahead.
func TestRecordAheadOfItsOwnDomainsClocksIsForeign(t *testing.T) {
	for what, behind := range map[string]clock.Instant{
		"on both clocks": {Raw: int64(time.Hour), Boot: int64(time.Hour)},
		"on raw":         {Raw: int64(time.Hour), Boot: int64(3 * time.Hour)},
		"on boot":        {Raw: int64(3 * time.Hour), Boot: int64(time.Hour)},
	} {
		w := newWorld(t)
		one := w.actor("clone", 2*time.Hour)
		clocks := &machineClocks{hand: clock.NewManual(behind)}
		two := w.process("two", clocks, "clone", w.memory.Open())
		l := one.hold("job", 30*time.Second)
		left := two.refused("job")
		if left < 30*time.Second || left > 31*time.Second {
			t.Errorf("ahead %s: the lease of 30 s lasts for %v at the most", what, left)
		}
		w.pass(20 * time.Second)
		one.extend(l, 30*time.Second)
		two.refused("job")
		w.pass(29 * time.Second)
		two.refused("job")
		w.pass(2 * time.Second)
		three := w.process("three", clocks, "clone", w.memory.Open()) // continues the count
		if !three.state("job").Over {
			if _, err := three.try("job", time.Minute); err != nil {
				t.Errorf("ahead %s, after its time: %v", what, err)
			}
		}
	}
}

// The clocks pass the write while the lease lasts: the count that began when it was ahead goes on.
func TestRecordThatWasAheadStaysForeign(t *testing.T) {
	w := newWorld(t)
	one, two := w.actor("clone", time.Hour+10*time.Second), w.process("two", newHands(time.Hour), "clone", w.memory.Open())
	one.hold("job", 30*time.Second)
	two.refused("job")
	w.pass(29 * time.Second)
	same(w, "what is left, rounded", two.refused("job").Round(time.Second), time.Second)
	w.pass(2 * time.Second)
	two.hold("job", time.Minute)
}

// One of the two clocks stands still, or runs away. A waiter waits until both are past the end; a holder stops
// when one is.
func TestBothClocksMustPassTheEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	b.refused("job")
	b.clocks.move(0, time.Hour) // suspended
	b.refused("job")
	b.clocks.move(29*time.Second, 29*time.Second)
	b.refused("job")
	a.clocks.move(0, 31*time.Second)
	same(w, "a still relies on it", a.Now().Before(l.Until()), false)
	w.is("a's machine has slept, its clock in Raw has not passed", a.Expire(t.Context(), "job"), backend.ErrHeld)
	b.clocks.move(2*time.Second, 2*time.Second)
	b.hold("job", time.Minute)
}

// The clocks' rates differ by as much as the drift bound allows.
func TestWaiterWaitsOutTheDriftBound(t *testing.T) {
	w := newWorld(t)
	drift := func(o *claim.Options) { o.Drift = 10_000 } // 1 %
	slow, fast := w.actor("slow", time.Hour, drift), w.actor("fast", 0, drift)
	slow.ppm, fast.ppm = -10_000, 10_000
	l := slow.hold("job", 100*time.Second)
	fast.refused("job")
	for slow.Now().Before(l.Until()) {
		fast.refused("job")
		w.pass(100 * time.Millisecond)
	}
	w.pass(time.Second)
	fast.hold("job", time.Minute)
}

// Each client waits by its own drift bound. No client is early as long as its clocks are right within its own
// bound. A holder's bound does not matter to other processes.
func TestDriftBoundsMayDiffer(t *testing.T) {
	w := newWorld(t)
	bound := func(d clock.Drift) func(*claim.Options) { return func(o *claim.Options) { o.Drift = d } }
	careless, exact, careful := w.actor("careless", time.Hour, bound(1)), w.actor("exact", 0, bound(10_000)), w.actor("careful", 9*time.Hour, bound(100_000))
	careless.ppm, exact.ppm, careful.ppm = -10_000, 10_000, 10_000
	l := careless.hold("job", 100*time.Second)
	exact.refused("job")
	careful.refused("job")
	for careless.Now().Before(l.Until()) {
		exact.refused("job")
		careful.refused("job")
		w.pass(100 * time.Millisecond)
	}
	w.pass(time.Second)
	careful.refused("job")
	l = exact.hold("job", 100*time.Second)
	for exact.Now().Before(l.Until()) {
		careful.refused("job")
		w.pass(time.Second)
	}
	// A process that resumes the tenure promises the old end and the new one, by its own bound.
	resumed, err := careful.Resume(t.Context(), "job", l.Token(), backend.Holder{ID: "careful"}, w.id())
	w.is("resume", err, nil)
	careful.extend(resumed, time.Second)
	exact.refused("job")
	for careful.Now().Before(resumed.Until()) {
		exact.refused("job")
		w.pass(time.Second)
	}
	w.pass(time.Minute)
	exact.hold("job", time.Minute)
}

func TestRevokeFreesTheNameWhenThePromiseHasPassed(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	until := l.Until()
	w.is("another token", b.Revoke(t.Context(), "job", l.Token()+1, "x", false), backend.ErrLost)
	w.is("a name without a holder", b.Revoke(t.Context(), "other", 0, "x", true), backend.ErrLost)
	w.is("revoke", b.Revoke(t.Context(), "job", l.Token(), "it hangs", false), nil)
	w.is("revoke again", b.Revoke(t.Context(), "job", 0, "again", false), nil)
	_, err := b.Resume(t.Context(), "job", l.Token(), backend.Holder{ID: "b"}, w.id())
	w.is("resume", err, backend.ErrLost)
	err = a.Extend(t.Context(), l, 0)
	w.is("a extends", err, backend.ErrLost)
	if !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("%v does not say why", err)
	}
	same(w, "until", l.Until(), until)
	b.refused("job")
	w.pass(29 * time.Second)
	b.refused("job")
	w.pass(2 * time.Second)
	next := b.hold("job", time.Minute)
	p := b.state("job").Record.Past
	if len(p) != 1 || p[0].Why != backend.Revoked || p[0].Note != "it hangs" || p[0].Token != l.Token() || next.Token() != l.Token()+1 {
		t.Errorf("the past: %+v", p)
	}
	same(w, "revoked", b.state("job").Record.Revoked, "")
}

// A revoked holder that releases does not keep the name from others until the end of its promise.
func TestRevokedLeaseCanBeReleased(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", time.Hour)
	w.is("revoke", b.Revoke(t.Context(), "job", 0, "it hangs", false), nil)
	w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
	w.is("a releases", a.Release(t.Context(), l), nil)
	b.hold("job", time.Minute)
	same(w, "why", b.state("job").Record.Past[0].Why, backend.Revoked)
}

func TestRevokeNowFreesTheNameAtOnce(t *testing.T) {
	for _, fate := range []string{"", "unanswered", "lost"} {
		w := newWorld(t)
		a, b := w.actor("a", time.Hour), w.actor("b", 0)
		l := a.hold("job", 30*time.Second)
		b.wire.next = []string{fate}
		w.is("revoke "+fate, b.Revoke(t.Context(), "job", 0, "", true), nil)
		same(w, "token", b.hold("job", time.Minute).Token(), l.Token()+2)
		w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
	}
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.hold("job", 30*time.Second)
	b.wire.next = []string{"unanswered"}
	b.wire.slow = func() { a.hold("job", time.Minute) } // another client has it before b reads
	w.is("revoke", b.Revoke(t.Context(), "job", 0, "", true), nil)
	same(w, "held", a.held("job"), true)
}

func TestLostAnswerOfAnExpireIsFound(t *testing.T) {
	for _, fate := range []string{"unanswered", "lost"} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		a.hold("job", 30*time.Second)
		w.pass(time.Minute)
		a.wire.next = []string{fate}
		w.is("expire "+fate, a.Expire(t.Context(), "job"), nil)
		same(w, "held", a.held("job"), false)
	}
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.hold("job", 30*time.Second)
	w.pass(time.Minute)
	a.wire.next = []string{"unanswered"}
	a.wire.slow = func() { a.onSameMachine("b").hold("job", time.Minute) }
	w.is("expire", a.Expire(t.Context(), "job"), nil)
}

func TestAnnounceChangesTheCardAlone(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	before := a.state("job").Record
	w.pass(10 * time.Second)
	w.is("pin", b.Pin(t.Context(), "job", "x"), nil)
	w.is("announce", a.Announce(t.Context(), l, "half done"), nil)
	r := a.state("job").Record
	if r.Card.Text != "half done" || r.Expiry != before.Expiry || r.Written != before.Written || r.Token != before.Token {
		t.Errorf("announced: %+v", r)
	}
	same(w, "it is relied on for", a.remains(l), 20*time.Second)
	a.wire.counted()
	a.extend(l, 0)
	same(w, "the next renewal costs", a.wire.counted(), "map[swap:1]")
	w.is("not UTF-8", a.Announce(t.Context(), l, "\xff"), backend.ErrInvalid)
	w.is("release", a.Release(t.Context(), l), nil)
	w.is("after the release", a.Announce(t.Context(), l, "x"), backend.ErrLost)
}

// The past lists earlier holders, newest first, and stays small.
func TestPastIsKeptAndStaysSmall(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	for i := range claim.MaxPast + 3 {
		q := a.request("job", 30*time.Second)
		q.Holder.ID, q.Holder.Card.Text = fmt.Sprint("h", i), strings.Repeat("ä", 2000)
		l, err := a.Claim(t.Context(), q)
		w.is("claim", err, nil)
		w.pass(10 * time.Second)
		if i%2 == 0 {
			w.is("release", a.Release(t.Context(), l), nil)
		}
		w.pass(time.Hour)
	}
	past := a.state("job").Record.Past
	if len(past) != claim.MaxPast {
		t.Fatalf("%d tenures are remembered", len(past))
	}
	first, second := past[0], past[1]
	if first.Holder.ID != "h18" || first.Why != backend.Released || first.To.Sub(first.From) != 10*time.Second || len(first.Holder.Card.Text) > 300 ||
		second.Holder.ID != "h17" || second.Why != backend.Expired || second.Token >= first.Token {
		t.Errorf("the past: %+v", past[:2])
	}
}

func TestBadRequestsAreRefused(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	good := a.request("job", time.Minute)
	for what, change := range map[string]func(*claim.Request){
		"no name":          func(q *claim.Request) { q.Name = "" },
		"a bad name":       func(q *claim.Request) { q.Name = "a//b" },
		"no id":            func(q *claim.Request) { q.ID = backend.ID{} },
		"no holder":        func(q *claim.Request) { q.Holder.ID = "" },
		"no TTL":           func(q *claim.Request) { q.TTL = 0 },
		"a negative TTL":   func(q *claim.Request) { q.TTL = -time.Second },
		"too short a TTL":  func(q *claim.Request) { q.TTL = claim.MinTTL - 1 },
		"too long a TTL":   func(q *claim.Request) { q.TTL = claim.MaxTTL + 1 },
		"the longest time": func(q *claim.Request) { q.TTL = 1<<63 - 1 },
	} {
		q := good
		change(&q)
		l, err := a.Claim(t.Context(), q)
		w.is(what, err, backend.ErrInvalid)
		if l != nil {
			t.Errorf("%s: a lease", what)
		}
	}
	l := a.hold("job", time.Minute)
	w.is("a negative TTL", a.Extend(t.Context(), l, -1), backend.ErrInvalid)
	w.is("a long reason", a.Revoke(t.Context(), "job", 0, strings.Repeat("x", claim.MaxReason+1), true), backend.ErrInvalid)
	same(w, "calls", a.wire.counted(), "map[get:2 swap:2]")
	for what, o := range map[string]claim.Options{
		"drift": {Drift: clock.MaxDrift + 1}, "attempts": {Attempts: -1}, "acknowledge": {Acknowledge: -1},
	} {
		_, err := claim.NewClient(a.wire, o)
		w.is(what, err, backend.ErrInvalid)
	}
	_, err := claim.NewClient(nil, claim.Options{})
	w.is("no store", err, backend.ErrInvalid)
}

// A list continues after the last name of the page before.
func TestListIsPaged(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	for _, name := range []string{"a", "b/1", "b/2", "b/3", "c"} {
		a.hold(name, time.Minute)
	}
	page, err := a.List(t.Context(), "b/", "b/1", 1)
	if err != nil || len(page) != 1 || page[0].Record.Name != "b/2" || page[0].Ends != time.Minute {
		t.Errorf("%+v, %v", page, err)
	}
	page, err = a.List(t.Context(), "", "", 0)
	if len(page) != 0 || err != nil {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestLeaseOfAnotherClientIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	b := a.onSameMachine("b")
	l := a.hold("job", time.Minute)
	for what, err := range map[string]error{
		"extend": b.Extend(t.Context(), l, 0), "release": b.Release(t.Context(), l),
		"announce": b.Announce(t.Context(), l, "x"),
	} {
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := b.ExtendAll(t.Context(), []*claim.Lease{l, nil}, func(_ int, err error) { w.is("all", err, backend.ErrInvalid) }); err != nil {
		t.Error(err)
	}
}

// Two counts are never mixed: it is unknown on which of the two clocks each can be trusted.
func TestInferredEndsAreNotMixedClockByClock(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour, func(o *claim.Options) { o.Acknowledge = time.Second }), w.actor("b", 0)
	a.hold("job", time.Minute)
	other := a.hold("other", time.Minute)
	b.refused("job") // both clocks must reach 60 s
	a.clocks.move(40*time.Second, 40*time.Second)
	a.extend(other, 0)
	b.clocks.move(50*time.Second, 0)
	same(w, "by a's clock record", b.refused("job").Round(time.Millisecond), 20*time.Second) // raw 70 s and boot 20 s
	b.clocks.move(15*time.Second, 21*time.Second)
	same(w, "on raw", b.refused("job").Round(time.Millisecond), 5*time.Second)
	b.clocks.move(5*time.Second+time.Millisecond, 0)
	b.hold("job", time.Minute)
}
