package claimtest

import (
	"math"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var (
	observationTests = []test{
		{"FirstIsKept", "", testFirstObservationIsKept},
		{"NewOpRestartsTheObservation", "", testNewOpRestartsObservation},
		{"Extremes", "", testExtremeObservations},
		{"AllAgree", "", testObservationsAgree},
		{"ChangesNoRecord", "", testObservingChangesNothing},
		{"Sweep", "", testSweep},
	}
	floorTests = []test{
		{"OnlyRises", "", testFloorOnlyRises},
		{"HighestWins", "", testHighestFloor},
	}
)

// mustObserve tells the store that op was seen, and returns the stored instant.
func (s *suite) mustObserve(store claim.Store, name string, d clock.Domain, op claim.Op, raw int64) int64 {
	s.Helper()
	at, err := store.Observe(s.Context(), name, d, op, clock.Instant{Raw: raw, Boot: raw + 1})
	if err != nil {
		s.Fatalf("Observe of %q in %q: %v", name, d, err)
	}
	if at.Boot != at.Raw+1 {
		s.Fatalf("Observe of %q in %q: the two readings %v are not of one instant", name, d, at)
	}
	return at.Raw
}

func testFirstObservationIsKept(s *suite) {
	a, b := s.open(), s.open()
	x, y := s.put(a, "jobs/x"), s.put(a, "jobs/y")
	for _, c := range []struct {
		store   claim.Store
		name    string
		d       clock.Domain
		op      claim.Op
		at, now int64
	}{
		{a, "jobs/x", "one", x.Op, 100, 100},
		{a, "jobs/x", "one", x.Op, 200, 100},
		{b, "jobs/x", "one", x.Op, 300, 100},
		{b, "jobs/x", "one", x.Op, 50, 100}, // the first one, not the lowest
		{b, "jobs/x", "two", x.Op, 300, 300},
		{b, "jobs/y", "one", y.Op, 400, 400},
		{a, "jobs/x", "One", x.Op, 500, 500},
		{a, "jobs/x", "one ", x.Op, 600, 600},
		{a, "jobs/x", "one", x.Op, 700, 100},
		{a, "jobs/x", "two", x.Op, 700, 300},
	} {
		if got := s.mustObserve(c.store, c.name, c.d, c.op, c.at); got != c.now {
			s.Errorf("%s in domain %q: first observed at %d, and not %d", c.name, c.d, got, c.now)
		}
	}
}

func testNewOpRestartsObservation(s *suite) {
	a, b := s.open(), s.open()
	first := s.put(a, "jobs/x")
	s.mustObserve(a, "jobs/x", "one", first.Op, 100)
	s.mustObserve(a, "jobs/x", "two", first.Op, 100)
	second := record("jobs/x", 2)
	if !s.mustSwap(b, first.Op, second) {
		s.Fatal("not written")
	}
	if got := s.mustObserve(b, "jobs/x", "one", second.Op, 200); got != 200 {
		s.Errorf("the observation of a new op dates from instant %d, and not from 200", got)
	}
	if got := s.mustObserve(a, "jobs/x", "one", second.Op, 300); got != 200 {
		s.Errorf("the observation of the new op dates from instant %d, and not from 200", got)
	}
	if got := s.mustObserve(a, "jobs/x", "two", first.Op, 400); got != 100 {
		s.Errorf("in another domain the observation of the old op dates from instant %d, and not from 100", got)
	}
}

// A sweep deletes observations of replaced writes, for its own names only.
func testSweep(s *suite) {
	store := s.open()
	names := []string{"a", "jobs", "jobs/a", "jobs/b", "jobs/b0", "jobs/c", "jobs/gone", "jobs0", "z"}
	ops := make(map[string]claim.Op) // observed by the domain "old"
	for _, name := range names {
		first := s.put(store, name)
		s.mustObserve(store, name, "old", first.Op, 100)
		second := record(name, 2)
		if !s.mustSwap(store, first.Op, second) {
			s.Fatal("not written")
		}
		s.mustObserve(store, name, "new", second.Op, 200)
		ops[name] = first.Op
		if name == "jobs/gone" { // a late process then observes a removed record
			if done, err := store.Remove(s.Context(), name, second.Op); !done || err != nil {
				s.Fatal(done, err)
			}
			s.mustObserve(store, name, "old", first.Op, 100)
		}
	}
	for _, c := range []struct {
		prefix, after, through string
		swept                  []string
	}{
		{"x", "", "", nil},
		{"jobs/", "", "jobs/a", []string{"jobs/a"}},
		{"jobs/", "jobs/a", "jobs/b", []string{"jobs/b"}},
		{"jobs/", "jobs/b", "", []string{"jobs/b0", "jobs/c", "jobs/gone"}},
		{"", "", "", []string{"a", "jobs", "jobs0", "z"}},
	} {
		if err := store.Sweep(s.Context(), c.prefix, c.after, c.through); err != nil {
			s.Fatal(err)
		}
		for _, name := range c.swept {
			if at := s.mustObserve(store, name, "old", ops[name], 300); at != 300 {
				s.Errorf("after a sweep of %q, after %q through %q, it is still known that %s was observed at %d", c.prefix, c.after, c.through, name, at)
			}
			delete(ops, name)
		}
		for _, name := range names {
			op, kept := ops[name]
			if kept {
				if at := s.mustObserve(store, name, "old", op, 300); at != 100 {
					s.Errorf("after a sweep of %q, after %q through %q, %s was forgotten", c.prefix, c.after, c.through, name)
				}
			}
			if r := s.mustGet(store, name).Record; r.Exists() {
				if at := s.mustObserve(store, name, "new", r.Op, 300); at != 200 {
					s.Errorf("what the record of %s has now was forgotten", name)
				}
			}
		}
	}
}

func testExtremeObservations(s *suite) {
	store := s.open()
	r := s.put(store, "jobs/x")
	for i, at := range []clock.Instant{
		{}, {Raw: math.MinInt64, Boot: math.MaxInt64}, {Raw: math.MaxInt64, Boot: math.MinInt64}, {Raw: -1, Boot: 1}, {Raw: 1 << 60, Boot: 1<<60 + 1},
	} {
		d := clock.Domain(everyCharacterBut("\n\r\t")) + clock.Domain(rune('a'+i))
		for range 2 {
			if got, err := store.Observe(s.Context(), "jobs/x", d, r.Op, at); got != at || err != nil {
				s.Errorf("what was observed at %v is kept as %v, %v", at, got, err)
			}
		}
	}
}

func testObservationsAgree(s *suite) {
	all := s.openAll()
	op := s.put(all[0], "jobs/x").Op
	for round := range rounds {
		var mu sync.Mutex
		told := make(map[int64]int)
		together(racers, func(i int) {
			at, err := all[i%clients].Observe(s.Context(), "jobs/x", "one", op, clock.Instant{Raw: int64(round*100 + i), Boot: 1})
			if err != nil {
				s.Errorf("Observe: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			told[at.Raw]++
		})
		if len(told) != 1 {
			s.Errorf("racers got different first instants: %v", told)
		}
		next := record("jobs/x", backend.Token(round+2))
		if !s.mustSwap(all[0], op, next) {
			s.Fatal("not written")
		}
		op = next.Op
	}
}

func testObservingChangesNothing(s *suite) {
	store := s.open()
	r := s.put(store, "jobs/x")
	s.mustObserve(store, "jobs/x", "one", r.Op, 1)
	s.mustObserve(store, "jobs/x", "one", claim.NewOp(), 2)
	s.same("after it was observed", s.mustGet(store, "jobs/x").Record, r)
	if !s.mustSwap(store, r.Op, record("jobs/x", 2)) {
		s.Error("after it was observed, a write from its op was refused")
	}
	if names := s.namesIn(store, "", "", 10); len(names) != 1 {
		s.Errorf("after it was observed a list has %q", names)
	}
}

func testFloorOnlyRises(s *suite) {
	a, b := s.open(), s.open()
	r := s.put(a, "jobs/x")
	var floor backend.Token
	for _, t := range []backend.Token{0, 5, 3, 5, 0, 1 << 40, 6, math.MaxInt64 - 1, math.MaxInt32} {
		floor = max(floor, t)
		if got, err := b.RaiseFloor(s.Context(), t); got != floor || err != nil {
			s.Errorf("RaiseFloor(%d) = %d, %v; want %d", t, got, err, floor)
		}
		for _, name := range []string{"jobs/x", "jobs/none"} {
			if f := s.mustGet(a, name); f.Floor != floor {
				s.Errorf("with the floor at %d, %s is returned with %d", floor, name, f.Floor)
			}
		}
	}
	s.same("after the floor was raised", s.mustGet(a, "jobs/x").Record, r)
}

func testHighestFloor(s *suite) {
	all := s.openAll()
	for round := range rounds {
		together(racers, func(i int) {
			t := backend.Token(round*100 + (i*5)%racers)
			got, err := all[i%clients].RaiseFloor(s.Context(), t)
			if err != nil || got < t {
				s.Errorf("RaiseFloor(%d) = %d, %v", t, got, err)
			}
		})
		if want := backend.Token(round*100 + racers - 1); s.mustGet(all[0], "jobs/none").Floor != want {
			s.Errorf("the floor is %d, and was raised to %d", s.mustGet(all[0], "jobs/none").Floor, want)
		}
	}
}
