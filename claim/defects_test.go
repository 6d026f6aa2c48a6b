package claim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Defects of earlier lease packages on databases, by their codes in docs/design/earlier-defects.md: B in the
// four generations of Juju's, S in mongoseal. Each defect that could occur in the core has a test here. Others
// concern a store or a keeper, or have no counterpart here. These tests check them:
//
//	B8   a cursor left open after a bad document: the core has no cursor; the suite of claimtest damages records of each store
//	B9   a queue of client-side transactions that poisons a record: each write is one conditional write; [TestNoCallTouchesAnotherRecord]
//	B10  a worker that dies of a passing error: nothing runs in the background; for a keeper TestWaitingSurvivesAStoreThatFails (leasekeeper)
//	B12  a clock that must be kept ticking, or nothing ends: each client counts by itself; TestSilentHolderIsReplacedOnTime (backend/claimed)
//	B15  timeouts at the start that restart the server: there is none; for a keeper TestLeasesEndInTimeWhenTheStoreIsGone (leasekeeper)
//	B16  a gate in another store than the data: TestGateInAnotherDatabaseIsRefused (backend/postgres), TestGateAllowsCommitsOnlyWhileHeld (backend/sqlite), TestGateErrorsHaveTheirKinds (backend/mongodb)
//	B18  no gate and no token: TestTakeoverRacesGate (backend/postgres, backend/sqlite), [TestTokensNeverGoBack]
//	S7   a TTL index that deletes records: backend/mongodb creates none; the effect of a deletion, and its repair, is in [TestTokensNeverGoBack]
//	S8   a unique index that was never created: TestNoIndexIsNeeded (internal/test/ferrettest); TestUnfitTablesAreRefused (backend/postgres)
//	S9   waiting, kinds of errors, silence: TestErrorsSayWhatHappened (internal/test/ferrettest), [TestErrorsSayWhatToDo], TestReleaseIsReportedOnlyIfConfirmed (leasekeeper)
//	S10  goroutines that sleep and ignore their context, and closing a client of the caller: TestCloseLeavesTheCallersClient (backend/mongodb),
//	     TestDatabaseOfTheCallerIsLeftOpen (backend/sqlite), TestCloseInterruptsWaitingCalls (leasekeeper)
//	S12  a manual that names other fields than the program: TestFieldsAreDocumented (internal/test/ferrettest)

// Defect B1: a renewal does not write because it believes that the old end is far enough away, which it cannot
// know.
func TestExtendAlwaysWrites(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	b := w.actor("b", time.Hour)
	l := a.hold("job", 30*time.Second)
	w.pass(20 * time.Second)
	b.refused("job")
	w.pass(time.Second)
	resumed, err := b.Resume(t.Context(), "job", l.Token(), backend.Holder{ID: "b"}, w.id())
	w.is("b resumes", err, nil)
	b.wire.counted()
	b.extend(resumed, 10*time.Second)
	same(w, "what an extension by less than what is left costs", b.wire.counted(), "map[swap:1]")
	w.pass(10 * time.Second)
	w.is("a ends it within b's promise", a.Expire(t.Context(), "job"), backend.ErrHeld)
}

// Defect B2: a refusal that rests on an old read keeps a lease alive that has ended.
func TestRefusalNeverComesFromACache(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.actor("a", time.Hour), w.actor("b", 0), w.actor("c", 5*time.Hour)
	l := a.hold("job", time.Hour)
	b.refused("job")
	w.is("release", a.Release(t.Context(), l), nil)
	l = b.hold("job", time.Hour)
	c.refused("job")
	w.is("release", b.Release(t.Context(), l), nil)
	w.is("expire", c.Expire(t.Context(), "job"), backend.ErrInvalid)
	c.hold("job", time.Hour)
}

// Defect B3: a step of the wall clock ends a living lease, or keeps its owner from doing anything.
func TestWallClockDecidesNothing(t *testing.T) {
	for _, step := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		w := newWorld(t)
		a, b := w.actor("a", time.Hour), w.actor("b", 0)
		l := a.hold("job", 30*time.Second)
		b.refused("job")
		w.wall = w.wall.Add(step)
		w.is("a's own end", a.Expire(t.Context(), "job"), backend.ErrHeld)
		b.refused("job")
		a.extend(l, 0)
		w.pass(31 * time.Second)
		b.refused("job") // which has just seen the renewal
		w.pass(31 * time.Second)
		b.hold("job", time.Minute)
	}
}

// Defect B4: a restarted process takes its predecessor's instants for its own, though the clocks started again
// too.
func TestAnotherBootIsAnotherDomain(t *testing.T) {
	w := newWorld(t)
	before := w.actor("machine", 1000*time.Hour)
	before.hold("job", 30*time.Second)
	after := w.process("machine", newHands(time.Second), "machine after its boot", w.memory.Open())
	if ends := after.refused("job"); ends > 31*time.Second {
		t.Errorf("its predecessor's lease lasts for %v", ends)
	}
	w.pass(29 * time.Second)
	after.refused("job")
	w.pass(2 * time.Second)
	after.hold("job", time.Minute)
}

// Defect B4: two processes whose domains are unknown must not take each other's instants for their own.
func TestUnknownDomainEqualsNothing(t *testing.T) {
	w := newWorld(t)
	one := w.process("one", newHands(time.Hour), clock.UnknownDomain, w.memory.Open())
	two := w.process("two", newHands(9*time.Hour), clock.UnknownDomain, w.memory.Open())
	l := one.hold("job", 30*time.Second)
	same(w, "one relies on it for", one.remains(l), 30*time.Second)
	two.refused("job")
	w.pass(29 * time.Second)
	one.extend(l, 20*time.Second)
	same(w, "one relies on it for", one.remains(l), 20*time.Second)
	two.refused("job")
	w.pass(19 * time.Second)
	two.refused("job")
	w.pass(2 * time.Second)
	same(w, "next token", two.hold("job", time.Minute).Token(), l.Token()+1)
}

// Defect B5: one record that every write changes slows down all of them.
func TestNoCallTouchesAnotherRecord(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.is("release", a.Release(t.Context(), a.hold("job", time.Minute)), nil)
	a.wire.counted()
	l := a.hold("job", time.Minute)
	same(w, "a claim of what this client has left costs", a.wire.counted(), "map[swap:1]")
	a.extend(l, 0)
	same(w, "a renewal costs", a.wire.counted(), "map[swap:1]")
	a.is("release", a.Release(t.Context(), l), nil)
	same(w, "a release costs", a.wire.counted(), "map[swap:1]")
	b := a.onSameMachine("b")
	b.is("release", b.Release(t.Context(), b.hold("job", time.Minute)), nil)
	same(w, "a claim and a release cost", b.wire.counted(), "map[get:1 swap:2]")
	a.is("release", a.Release(t.Context(), a.hold("job", time.Minute)), nil)
	same(w, "what others have had since costs", a.wire.counted(), "map[get:1 swap:3]")
	a.hold("job", time.Minute)
	a.wire.counted()
	w.pass(61 * time.Second)
	a.hold("job", time.Minute)
	same(w, "to take over costs", a.wire.counted(), "map[get:1 swap:1]")
	a.hold("new", time.Minute)
	same(w, "the first claim to a name costs", a.wire.counted(), "map[get:2 swap:2]")
}

// Defect B6: one record that cannot be read disables all of them.
func TestCorruptRecordAffectsOnlyItself(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	bad := a.hold("bad", time.Minute)
	good := a.hold("good", time.Minute)
	w.memory.Damage("", "bad")
	_, err := b.try("bad", time.Minute)
	w.is("claim", err, backend.ErrCorrupt)
	_, err = b.Get(t.Context(), "bad")
	w.is("get", err, backend.ErrCorrupt)
	a.extend(good, 0)
	w.is("refresh", b.Refresh(t.Context()), nil)
	all, err := b.List(t.Context(), "", "", 10)
	if err != nil || len(all) != 2 || !errors.Is(all[0].Err, backend.ErrCorrupt) || all[0].Over || all[1].Err != nil || all[1].Record.Holder != "a" {
		t.Errorf("listed: %+v, %v", all, err)
	}
	n, err := b.Collect(t.Context(), claim.Collection{})
	if n != 0 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
	_ = bad
}

// Defect B6: a readable record with impossible content is corrupt as well, and is no reason to take the name.
func TestImpossibleRecordIsCorrupt(t *testing.T) {
	ok := claim.Record{Name: "job", Holder: "x", Token: 7, Incarnation: backend.ID{1}, Domain: "x", Written: clock.Instant{Raw: 5, Boot: 5},
		Expiry: clock.Instant{Raw: 9, Boot: 9}, TTL: 4}
	for what, change := range map[string]func(*claim.Record){
		"no token":                  func(r *claim.Record) { r.Token = 0 },
		"no incarnation":            func(r *claim.Record) { r.Incarnation = backend.ID{} },
		"no TTL":                    func(r *claim.Record) { r.TTL = 0 },
		"raw expiry before written": func(r *claim.Record) { r.Expiry.Raw = 4 },
		"boot before written":       func(r *claim.Record) { r.Expiry.Boot = 4 },
	} {
		w := newWorld(t)
		a := w.actor("a", time.Hour)
		r := ok
		r.Op = claim.NewOp()
		change(&r)
		if done, err := w.memory.Open().Swap(t.Context(), claim.Swap{Record: r}); !done || err != nil {
			t.Fatal(done, err)
		}
		_, err := a.try("job", time.Minute)
		w.is(what, err, backend.ErrCorrupt)
	}
}

// Defect B7: several goroutines use the memory of one client without a lock.
func TestClientIsSafeForConcurrentUse(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour, patient), w.actor("b", 0, patient)
	var all sync.WaitGroup
	var held sync.Map
	var got atomic.Int32
	for i := range 8 {
		x := []*actor{a, b}[i%2]
		holder := backend.Holder{ID: fmt.Sprint(i)}
		for n := range 25 {
			id := w.id()
			all.Go(func() {
				name := fmt.Sprint("job", n%3)
				l, err := x.Claim(t.Context(), claim.Request{Name: name, ID: id, Holder: holder, TTL: time.Minute})
				if err != nil {
					return
				}
				got.Add(1)
				if other, twice := held.LoadOrStore(name, i); twice {
					t.Errorf("%s is held by %d and %d", name, other, i)
				}
				_, _ = x.Get(t.Context(), name)
				_ = x.Extend(t.Context(), l, 0)
				held.Delete(name)
				if err := x.Release(t.Context(), l); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	if got.Load() == 0 {
		t.Error("no client got a name")
	}
}

func patient(o *claim.Options) { o.Attempts = 1000 }

// Defect B11: a clock that ticks coarsely lets leases end up to a tick early. Ends are exact to the nanosecond.
func TestEndsAreExactToTheNanosecond(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	twin := a.onSameMachine("twin")
	ttl := 1500*time.Millisecond + 1
	a.hold("job", ttl)
	w.pass(ttl)
	same(w, "what is left", twin.refused("job"), 1)
	w.pass(1)
	twin.hold("job", time.Minute)
}

// Defect B13: a decision rests on a replica that lags. Here a stale read costs time, never safety.
func TestStaleReadIsHarmless(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	net := claimtest.Faulty(w.memory.Open())
	defer net.Close(t.Context())
	hands := newHands(0)
	b, err := claim.NewClient(net, claim.Options{Clock: hands, Domain: "b", Drift: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := a.hold("job", 30*time.Second)
	if _, err := b.Get(t.Context(), "job"); err != nil {
		t.Fatal(err)
	}
	hands.move(31*time.Second, 31*time.Second)
	a.extend(l, 0)
	net.Inject(claimtest.Call{Method: claimtest.Get}, 1, claimtest.Fault{Stale: true})
	_, err = b.Claim(t.Context(), claim.Request{Name: "job", ID: w.id(), Holder: backend.Holder{ID: "b"}, TTL: time.Minute})
	w.is("b claims what it sees as it was", err, backend.ErrHeld)
	same(w, "the token", a.state("job").Record.Token, l.Token())
}

// Defect B14: under load, claims succeed and renewals are dropped.
func TestRenewalsRetryLongerThanClaims(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", time.Minute)
	trouble := 0
	a.wire.before = func(claim.Swap) { // another client is faster, ten times
		if trouble++; trouble <= 10 {
			w.is("pin", b.Pin(t.Context(), "job", fmt.Sprint(trouble)), nil)
		}
	}
	a.extend(l, 0)
	same(w, "tries", trouble, 11)
	w.is("unpin", b.Unpin(t.Context(), "job", ""), nil)
	w.is("release", a.Release(t.Context(), l), nil)
	trouble = 0
	_, err := a.try("job", time.Minute)
	w.is("claim", err, backend.ErrContention)
	same(w, "tries", trouble, 8)
}

// Defect B17: a shorter extension shortens the lease. See also [TestExtendNeverShortens].
func TestShorterExtendShortensNothing(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", time.Minute)
	a.extend(l, 10*time.Millisecond)
	b.refused("job")
	w.pass(59 * time.Second)
	b.refused("job")
	same(w, "it is relied on for", a.remains(l), time.Second)
}

// Defect B19: one wall clock, that of the machine which leads the database, decides. Here that clock decides
// only in store-clock mode, and only within the very write that takes the name.
func TestStoreClockDecidesInTheWriteItself(t *testing.T) {
	w := newWorld(t)
	a, b := judged(w, "a"), judged(w, "b")
	l := a.hold("job", 30*time.Second)
	w.memory.Advance(31 * time.Second)
	b.wire.before = func(claim.Swap) { w.memory.Advance(-2 * time.Second) } // another machine leads now, and its clock is behind
	b.refused("job")
	same(w, "the token", a.state("job").Record.Token, l.Token())
}

// judged adds a machine with a client in store-clock mode.
func judged(w *world, name string) *actor {
	w.Helper()
	s, err := w.memory.OpenNamespace("judged", true)
	if err != nil {
		w.Fatal(err)
	}
	return w.process(name, newHands(time.Duration(len(w.actors))*time.Hour), clock.Domain(name), s)
}

// Defect B20: the holder cannot know until when it is safe. The test also shows that writes of other processes
// do not move its deadline.
func TestHolderKnowsItsDeadline(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	l := a.hold("job", 30*time.Second)
	same(w, "until", l.Until(), a.state("job").Record.Expiry)
	until := l.Until()
	w.pass(10 * time.Second)
	resumed, err := b.Resume(t.Context(), "job", l.Token(), backend.Holder{ID: "b"}, w.id())
	w.is("b resumes", err, nil)
	b.extend(resumed, time.Hour)
	same(w, "after b has prolonged it", l.Until(), until)
	w.is("a extends", a.Extend(t.Context(), l, 0), backend.ErrLost)
	same(w, "after it was lost", l.Until(), until)
}

// Defect S1: the token starts again when the record is deleted.
func TestTokensNeverGoBack(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	var last backend.Token
	for i := range 5 {
		x := []*actor{a, b}[i%2]
		l := x.hold("job", 30*time.Second)
		if l.Token() <= last {
			t.Errorf("token %d after %d", l.Token(), last)
		}
		last = l.Token()
		w.is("release", x.Release(t.Context(), l), nil)
		if i == 2 {
			n, err := b.Collect(t.Context(), claim.Collection{})
			if n != 1 || err != nil {
				t.Errorf("collected %d, %v", n, err)
			}
		}
	}
}

// Defect S2: wall clocks of different machines are compared.
func TestNoClockIsComparedWithAnother(t *testing.T) {
	for _, offset := range []time.Duration{-time.Hour, 0, time.Hour, 1000 * time.Hour} {
		w := newWorld(t)
		a, b := w.actor("a", 10*time.Hour), w.actor("b", 10*time.Hour+max(offset, -10*time.Hour))
		a.hold("job", 30*time.Second)
		if ends := b.refused("job"); ends < 30*time.Second || ends > 30*time.Second+time.Millisecond {
			t.Errorf("offset %v: it lasts for %v", offset, ends)
		}
	}
}

// Defect S3: a process that takes over goes by its own TTL, and not by that of the holder.
func TestTakeoverGoesByTheHoldersTTL(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.hold("job", time.Hour)
	if _, err := b.try("job", 10*time.Millisecond); !errors.Is(err, backend.ErrHeld) {
		t.Error(err)
	}
	w.pass(time.Minute)
	_, err := b.try("job", 10*time.Millisecond)
	w.is("b, whose own TTL has long passed", err, backend.ErrHeld)
}

// Defect S4: a renewal adds to the old end instead of to now, so after a pause the new end is still in the
// past.
func TestExtendCountsFromNow(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	l := a.hold("job", 30*time.Second)
	w.pass(20 * time.Minute)
	a.extend(l, 0)
	same(w, "after a pause it is relied on for", a.remains(l), 30*time.Second)
	for range 10 {
		a.extend(l, 0)
	}
	same(w, "after many renewals", a.remains(l), 30*time.Second)
}

// Defect S5: the deadline counts from the answer and not from the request.
func TestDeadlineCountsFromBeforeTheSend(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	a.wire.before = func(claim.Swap) { w.pass(5 * time.Second) }
	l := a.hold("job", 30*time.Second)
	same(w, "a claim that took 5 s", a.remains(l), 25*time.Second)
	a.extend(l, 0)
	same(w, "a renewal that took 5 s", a.remains(l), 25*time.Second)
	w.is("many", a.ExtendAll(t.Context(), []*claim.Lease{l}, func(_ int, err error) { w.is("one", err, nil) }), nil)
	same(w, "renewals that took 5 s", a.remains(l), 25*time.Second)
}

// Defect S6: a claim takes two steps, and a lost answer leaves a name held by a client that does not know.
func TestLostAnswerOfAClaimIsFound(t *testing.T) {
	w := newWorld(t)
	a, b := w.actor("a", time.Hour), w.actor("b", 0)
	a.wire.next = []string{"unanswered"}
	before := a.Now()
	l := a.hold("job", 30*time.Second)
	same(w, "token", l.Token(), 1)
	same(w, "until", l.Until(), before.Add(30*time.Second))
	b.refused("job")
	a.wire.counted()
	a.extend(l, 0)
	same(w, "what the next renewal costs", a.wire.counted(), "map[swap:1]")
}

// Defect S11: two holders are distinct only if their user has named them differently.
func TestSameHolderIDIsAnotherHolder(t *testing.T) {
	w := newWorld(t)
	one, two := w.actor("worker", time.Hour), (*actor)(nil)
	two = one.onSameMachine("worker")
	l := one.hold("job", 30*time.Second)
	two.refused("job")
	w.pass(31 * time.Second)
	next := two.hold("job", 30*time.Second)
	w.is("the first extends", one.Extend(t.Context(), l, 0), backend.ErrLost)
	w.is("the first releases", one.Release(t.Context(), l), nil)
	two.extend(next, 0)
}

// Errors say what to do, and show no more than they must.
func TestErrorsSayWhatToDo(t *testing.T) {
	w := newWorld(t)
	a := w.actor("a", time.Hour)
	for _, c := range []struct {
		err  error
		says string
	}{
		{func() error { _, err := a.try("job", time.Nanosecond); return err }(), "from 10ms to"},
		{a.Pin(t.Context(), "job", ""), "the reason is empty"},
		{func() error { _, err := a.RaiseFloor(t.Context(), 1<<63); return err }(), "the largest is"},
		{a.Release(context.Background(), nil), "another client"},
	} {
		if !errors.Is(c.err, backend.ErrInvalid) || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%v does not say %q", c.err, c.says)
		}
	}
}
