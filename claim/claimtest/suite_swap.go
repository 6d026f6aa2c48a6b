package claimtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var swapTests = []test{
	{"Create", "", testCreate},
	{"OnlyFromTheOp", "", testOnlyFromTheOp},
	{"OpsAreNotTokens", "", testOpsAreNotTokens},
	{"Extends", "", testExtends},
	{"Keeps", "", testKeeps},
	{"Past", "", testPast},
	{"TouchesOneName", "", testTouchesOneName},
	{"WritesAreReadAtOnce", "", testIsReadAtOnce},
	{"OneCreates", "", testOneCreates},
	{"OneWins", "", testOneWins},
	{"NoIncrementIsLost", "", testNoneIsLost},
	{"Remove", "", testRemove},
	{"RemoveOrSwap", "", testRemoveOrSwap},
}

// The numbers of racers, clients and rounds in the tests of races.
const (
	racers  = 8
	clients = 4
	rounds  = 6
)

// openAll returns several clients of one namespace.
func (s *suite) openAll() []claim.Store {
	s.Helper()
	all := make([]claim.Store, clients)
	for i := range all {
		all[i] = s.open()
	}
	return all
}

func testCreate(s *suite) {
	a, b := s.open(), s.open()
	first := s.put(a, "jobs/x")
	for _, store := range []claim.Store{a, b} {
		if s.mustSwap(store, claim.Op{}, record("jobs/x", 2)) {
			s.Error("a record was created over another")
		}
	}
	vacant := claim.Record{Name: "jobs/x", Token: 2, Op: claim.NewOp(), Domain: "some machine"}
	if !s.mustSwap(b, first.Op, vacant) {
		s.Fatal("a tombstone was not written")
	}
	if s.mustSwap(a, claim.Op{}, record("jobs/x", 3)) {
		s.Error("a record was created over a tombstone")
	}
	s.same("the tombstone", s.mustGet(a, "jobs/x").Record, vacant)
}

// A swap with Extends leaves all other fields as they were, and is as conditional as any.
func testExtends(s *suite) {
	a, b := s.open(), s.open()
	for i, r := range extremes()[:3] {
		r.Name += fmt.Sprint(i)
		if !s.mustSwap(a, claim.Op{}, r) {
			s.Fatal("not written")
		}
		next := extension(r)
		for _, c := range []struct {
			old  claim.Op
			done bool
		}{{claim.NewOp(), false}, {r.Op, true}, {r.Op, false}} {
			w := next
			if !c.done {
				w.Op = claim.NewOp()
			}
			if done, err := b.Swap(s.Context(), claim.Swap{Old: c.old, Record: w, Extends: true}); done != c.done || err != nil {
				s.Fatalf("extreme %d: %v, %v", i, done, err)
			}
		}
		s.same("extended", s.mustGet(a, r.Name).Record, next)
	}
	if done, err := b.Swap(s.Context(), claim.Swap{Old: claim.NewOp(), Record: record("jobs/none", 1), Extends: true}); done || err != nil {
		s.Errorf("what is not there was extended: %v, %v", done, err)
	}
}

// A swap with Keeps changes everything but pins, past and mark, and is as conditional as any.
func testKeeps(s *suite) {
	a, b := s.open(), s.open()
	for i, r := range extremes() {
		r.Name, r.Holder = fmt.Sprint("jobs/", i), ""
		if !s.mustSwap(a, claim.Op{}, r) {
			s.Fatal("not written")
		}
		next := record(r.Name, r.Token)
		next.Pins, next.Past, next.Mark = r.Pins, r.Past, r.Mark
		other := next
		other.Op = claim.NewOp()
		for _, w := range []struct {
			swap claim.Swap
			done bool
		}{
			{claim.Swap{Old: claim.NewOp(), Record: other}, false}, {claim.Swap{Old: r.Op, Record: next}, true}, {claim.Swap{Old: r.Op, Record: other}, false},
		} {
			w.swap.Keeps, w.swap.Owner = true, true
			if done, err := b.Swap(s.Context(), w.swap); done != w.done || err != nil {
				s.Fatalf("extreme %d: %v, %v", i, done, err)
			}
		}
		s.same("kept", s.mustGet(a, r.Name).Record, next)
	}
}

// Tenures end one after the other, by one client or by two. Each of them, and a client that has read nothing
// before, reads back the whole record.
func testPast(s *suite) {
	const turns = claim.MaxPast + 10
	a, b := s.open(), s.open()
	last := s.put(a, "jobs/x")
	for turn := range turns {
		by := a
		if turn%7 == 3 {
			by = b
		}
		vacant := last
		vacant.Op, vacant.Holder, vacant.Token = claim.NewOp(), "", last.Token+1
		at := time.Unix(int64(turn), 0).UTC()
		ended := backend.Tenure{Token: last.Token, Holder: backend.Holder{ID: last.Holder, Card: backend.Card{Host: "here", Started: at}}, From: at, To: at, Why: backend.Released}
		vacant.Past = append([]backend.Tenure{ended}, last.Past[:min(len(last.Past), claim.MaxPast-1)]...)
		taken := vacant
		taken.Op, taken.Holder, taken.Token = claim.NewOp(), "someone else", vacant.Token+1
		for _, w := range []claim.Swap{{Old: last.Op, Record: vacant, Owner: true, Adds: turn%5 != 1}, {Old: vacant.Op, Record: taken, Owner: true, Keeps: true}} {
			if done, err := by.Swap(s.Context(), w); !done || err != nil {
				s.Fatalf("turn %d: %v, %v", turn, done, err)
			}
			readers := []claim.Store{a, b}
			if turn == 4 || turn == turns-1 {
				readers = append(readers, s.open())
			}
			for _, reader := range readers[turn%2:] { // a client that reads knows the record
				s.same(fmt.Sprint("turn ", turn), s.mustGet(reader, "jobs/x").Record, w.Record)
			}
		}
		last = taken
	}
}

func testOnlyFromTheOp(s *suite) {
	store := s.open()
	if s.mustSwap(store, claim.NewOp(), record("jobs/x", 1)) || s.exists(store, "jobs/x") {
		s.Error("a record that did not exist was written over")
	}
	first := s.put(store, "jobs/x")
	near := first.Op
	near[15] ^= 1
	for _, wrong := range []claim.Op{claim.NewOp(), near, {}} {
		if s.mustSwap(store, wrong, record("jobs/x", 9)) {
			s.Errorf("a record with op %v was written over from %v", first.Op, wrong)
		}
	}
	s.same("after refused writes", s.mustGet(store, "jobs/x").Record, first)
	second := record("jobs/x", 2)
	if !s.mustSwap(store, first.Op, second) {
		s.Error("a write from the right op was refused")
	}
	if s.mustSwap(store, first.Op, record("jobs/x", 3)) {
		s.Error("a write from an op that was replaced was done")
	}
	s.same("at the end", s.mustGet(store, "jobs/x").Record, second)
}

// A record that was removed and created again is another record, even if only its op differs.
func testOpsAreNotTokens(s *suite) {
	store := s.open()
	first := s.put(store, "jobs/x")
	if done, err := store.Remove(s.Context(), "jobs/x", first.Op); !done || err != nil {
		s.Fatalf("Remove: %v, %v", done, err)
	}
	again := first
	again.Op = claim.NewOp()
	if !s.mustSwap(store, claim.Op{}, again) {
		s.Fatal("a record that was removed cannot be made again")
	}
	if s.mustSwap(store, first.Op, record("jobs/x", 2)) {
		s.Error("a write that was decided on a removed record was done to the next one")
	}
	if done, err := store.Remove(s.Context(), "jobs/x", first.Op); done || err != nil {
		s.Errorf("Remove with the op of a record that was removed before: done %v, error %v; it must do nothing", done, err)
	}
	s.same("the record made again", s.mustGet(store, "jobs/x").Record, again)
}

func testTouchesOneName(s *suite) {
	store := s.open()
	shared := claim.NewOp() // not even the same op joins them
	var all []claim.Record
	for _, name := range []string{"jobs", "jobs/a", "jobs/b", "jobs/a/b"} {
		r := record(name, 1)
		r.Op = shared
		if !s.mustSwap(store, claim.Op{}, r) {
			s.Fatalf("%q was not written", name)
		}
		all = append(all, r)
	}
	all[1] = record("jobs/a", 2)
	if !s.mustSwap(store, shared, all[1]) {
		s.Fatal("jobs/a was not written")
	}
	if done, err := store.Remove(s.Context(), "jobs/b", shared); !done || err != nil {
		s.Fatalf("Remove: %v, %v", done, err)
	}
	all[2] = claim.Record{}
	for i, name := range []string{"jobs", "jobs/a", "jobs/b", "jobs/a/b"} {
		if f := s.mustGet(store, name); f.Record.Op != all[i].Op {
			s.Errorf("%q has op %v, and not %v", name, f.Record.Op, all[i].Op)
		}
	}
}

// All clients read what one client was told is written.
func testIsReadAtOnce(s *suite) {
	all := s.openAll()
	last := s.put(all[0], "jobs/x")
	for i := range 5 * clients {
		for _, reader := range all {
			if f := s.mustGet(reader, "jobs/x"); f.Record.Op != last.Op {
				s.Fatalf("after write %d a client still reads op %v, and not %v", i, f.Record.Op, last.Op)
			}
		}
		next := record("jobs/x", backend.Token(i+2))
		if !s.mustSwap(all[i%clients], last.Op, next) {
			s.Fatalf("write %d from what was just read was refused", i)
		}
		last = next
	}
}

// race lets many swap from one op at the same time, and returns the record of the winner.
func (s *suite) race(all []claim.Store, name string, from claim.Op) claim.Record {
	s.Helper()
	var mu sync.Mutex
	var winners []claim.Record
	together(racers, func(i int) {
		r := record(name, backend.Token(i+1))
		done, err := all[i%len(all)].Swap(s.Context(), claim.Swap{Old: from, Record: r, Owner: true})
		if err != nil {
			s.Errorf("racer %d: %v", i, err)
		}
		if done {
			mu.Lock()
			defer mu.Unlock()
			winners = append(winners, r)
		}
	})
	if len(winners) != 1 {
		s.Fatalf("%d of %d writes from one op were done", len(winners), racers)
	}
	s.same("what the winner wrote", s.mustGet(all[0], name).Record, winners[0])
	return winners[0]
}

func testOneCreates(s *suite) {
	all := s.openAll()
	for i := range rounds {
		s.race(all, "jobs/"+string(rune('a'+i)), claim.Op{})
	}
}

func testOneWins(s *suite) {
	all := s.openAll()
	last := s.put(all[0], "jobs/x")
	for range rounds {
		last = s.race(all, "jobs/x", last.Op)
	}
}

// Many clients increment a number in one record. It ends as high as the number of successes, and no client sees
// it fall.
func testNoneIsLost(s *suite) {
	all := s.openAll()
	s.put(all[0], "jobs/x")
	var done atomic.Int64
	together(racers, func(i int) {
		store, seen := all[i%clients], backend.Token(0)
		for range 2 * rounds {
			f, err := store.Get(s.Context(), "jobs/x")
			if err != nil {
				s.Errorf("Get: %v", err)
				return
			}
			if f.Record.Token < seen {
				s.Errorf("token %d is read after %d", f.Record.Token, seen)
			}
			seen = f.Record.Token
			ok, err := store.Swap(s.Context(), claim.Swap{Old: f.Record.Op, Record: record("jobs/x", seen+1)})
			if err != nil {
				s.Errorf("Swap: %v", err)
				return
			}
			if ok {
				done.Add(1)
			}
		}
	})
	if got := s.mustGet(all[0], "jobs/x").Record.Token; got != backend.Token(done.Load())+1 {
		s.Errorf("%d writes of one more were done, and the token is %d", done.Load(), got)
	}
	if done.Load() == 0 {
		s.Error("no swap succeeded")
	}
}

func testRemove(s *suite) {
	a, b := s.open(), s.open()
	r := s.put(a, "jobs/x")
	if _, err := a.Observe(s.Context(), "jobs/x", "d", r.Op, clock.Instant{Raw: 1, Boot: 1}); err != nil {
		s.Fatal(err)
	}
	for _, c := range []struct {
		what string
		name string
		op   claim.Op
		done bool
	}{
		{"another op", "jobs/x", claim.NewOp(), false},
		{"no op", "jobs/x", claim.Op{}, false},
		{"another name", "jobs/y", r.Op, false},
		{"what there is", "jobs/x", r.Op, true},
		{"what there was", "jobs/x", r.Op, false},
	} {
		if done, err := b.Remove(s.Context(), c.name, c.op); done != c.done || err != nil {
			s.Errorf("Remove of %s: %v, %v", c.what, done, err)
		}
		if s.exists(a, "jobs/x") != (c.what != "what there is" && c.what != "what there was") {
			s.Errorf("after Remove of %s the record does not match the result", c.what)
		}
	}
	// The observation is gone as well, even for the same op.
	if at, err := b.Observe(s.Context(), "jobs/x", "d", r.Op, clock.Instant{Raw: 2, Boot: 2}); err != nil || at != (clock.Instant{Raw: 2, Boot: 2}) {
		s.Errorf("after its record was removed, what is kept as observed is %v, %v", at, err)
	}
	if all, err := a.List(s.Context(), "", "", 10); err != nil || len(all) != 0 {
		s.Errorf("after Remove a list has %+v, %v", all, err)
	}
}

// Of a removal and writes from one op only one happens.
func testRemoveOrSwap(s *suite) {
	all := s.openAll()
	for i := range rounds {
		name := "jobs/" + string(rune('a'+i))
		first := s.put(all[0], name)
		var done, removed atomic.Int64
		together(racers, func(i int) {
			var ok bool
			var err error
			if i%2 == 0 {
				ok, err = all[i%clients].Remove(s.Context(), name, first.Op)
			} else {
				ok, err = all[i%clients].Swap(s.Context(), claim.Swap{Old: first.Op, Record: record(name, 2)})
			}
			if err != nil {
				s.Errorf("racer %d: %v", i, err)
			}
			if ok {
				done.Add(1)
			}
			if ok && i%2 == 0 {
				removed.Add(1)
			}
		})
		if done.Load() != 1 {
			s.Errorf("%d removals and writes from one op were done", done.Load())
		}
		if exists := s.exists(all[1], name); exists == (removed.Load() == 1) {
			s.Errorf("removed: %d, and that there is a record is %v", removed.Load(), exists)
		}
	}
}
