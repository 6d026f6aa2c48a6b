package claimtest

import (
	"math"
	"sync"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/driver"
)

var (
	sightTests = []test{
		{"FirstIsKept", "", testFirstSightIsKept},
		{"NewOpIsNew", "", testNewOpIsNew},
		{"Extremes", "", testExtremeSights},
		{"AllAgree", "", testSightsAgree},
		{"ChangesNoRecord", "", testSightChangesNothing},
	}
	floorTests = []test{
		{"OnlyRises", "", testFloorOnlyRises},
		{"HighestWins", "", testHighestFloor},
	}
)

// sight tells the store that op was seen, and returns what it keeps.
func (s *suite) sight(store claim.Store, name string, d clock.Domain, op claim.Op, raw int64) int64 {
	s.Helper()
	at, err := store.Sight(s.Context(), name, d, op, clock.Instant{Raw: raw, Boot: raw + 1})
	if err != nil {
		s.Fatalf("Sight of %q in %q: %v", name, d, err)
	}
	if at.Boot != at.Raw+1 {
		s.Fatalf("Sight of %q in %q: the two readings %v are not of one instant", name, d, at)
	}
	return at.Raw
}

func testFirstSightIsKept(s *suite) {
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
		{b, "jobs/x", "one", x.Op, 50, 100}, // the first one, not the least
		{b, "jobs/x", "two", x.Op, 300, 300},
		{b, "jobs/y", "one", y.Op, 400, 400},
		{a, "jobs/x", "One", x.Op, 500, 500},
		{a, "jobs/x", "one ", x.Op, 600, 600},
		{a, "jobs/x", "one", x.Op, 700, 100},
		{a, "jobs/x", "two", x.Op, 700, 300},
	} {
		if got := s.sight(c.store, c.name, c.d, c.op, c.at); got != c.now {
			s.Errorf("%s in domain %q: first sighted at %d, and not %d", c.name, c.d, got, c.now)
		}
	}
}

func testNewOpIsNew(s *suite) {
	a, b := s.open(), s.open()
	first := s.put(a, "jobs/x")
	s.sight(a, "jobs/x", "one", first.Op, 100)
	s.sight(a, "jobs/x", "two", first.Op, 100)
	second := record("jobs/x", 2)
	if !s.swap(b, first.Op, second) {
		s.Fatal("not written")
	}
	if got := s.sight(b, "jobs/x", "one", second.Op, 200); got != 200 {
		s.Errorf("a new op was sighted at %d, and not at 200", got)
	}
	if got := s.sight(a, "jobs/x", "one", second.Op, 300); got != 200 {
		s.Errorf("the new op was sighted at %d, and not at 200", got)
	}
	if got := s.sight(a, "jobs/x", "two", first.Op, 400); got != 100 {
		s.Errorf("in another domain the old op was sighted at %d, and not at 100", got)
	}
}

func testExtremeSights(s *suite) {
	store := s.open()
	r := s.put(store, "jobs/x")
	for i, at := range []clock.Instant{
		{}, {Raw: math.MinInt64, Boot: math.MaxInt64}, {Raw: math.MaxInt64, Boot: math.MinInt64}, {Raw: -1, Boot: 1}, {Raw: 1 << 60, Boot: 1<<60 + 1},
	} {
		d := clock.Domain(everyCharacterBut("\n\r\t")) + clock.Domain(rune('a'+i))
		for range 2 {
			if got, err := store.Sight(s.Context(), "jobs/x", d, r.Op, at); got != at || err != nil {
				s.Errorf("what was sighted at %v is kept as %v, %v", at, got, err)
			}
		}
	}
}

func testSightsAgree(s *suite) {
	all := s.openAll()
	op := s.put(all[0], "jobs/x").Op
	for round := range rounds {
		var mu sync.Mutex
		told := make(map[int64]int)
		together(racers, func(i int) {
			at, err := all[i%clients].Sight(s.Context(), "jobs/x", "one", op, clock.Instant{Raw: int64(round*100 + i), Boot: 1})
			if err != nil {
				s.Errorf("Sight: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			told[at.Raw]++
		})
		if len(told) != 1 {
			s.Errorf("racers were told different first instants: %v", told)
		}
		next := record("jobs/x", driver.Token(round+2))
		if !s.swap(all[0], op, next) {
			s.Fatal("not written")
		}
		op = next.Op
	}
}

func testSightChangesNothing(s *suite) {
	store := s.open()
	r := s.put(store, "jobs/x")
	s.sight(store, "jobs/x", "one", r.Op, 1)
	s.sight(store, "jobs/x", "one", claim.NewOp(), 2)
	s.same("after it was sighted", s.get(store, "jobs/x").Record, r)
	if !s.swap(store, r.Op, record("jobs/x", 2)) {
		s.Error("after it was sighted, a write from its op was refused")
	}
	if names := s.list(store, "", "", 10); len(names) != 1 {
		s.Errorf("after it was sighted a list has %q", names)
	}
}

func testFloorOnlyRises(s *suite) {
	a, b := s.open(), s.open()
	r := s.put(a, "jobs/x")
	var floor driver.Token
	for _, t := range []driver.Token{0, 5, 3, 5, 0, 1 << 40, 6, math.MaxInt64 - 1, math.MaxInt32} {
		floor = max(floor, t)
		if got, err := b.RaiseFloor(s.Context(), t); got != floor || err != nil {
			s.Errorf("RaiseFloor(%d) = %d, %v; want %d", t, got, err, floor)
		}
		for _, name := range []string{"jobs/x", "jobs/none"} {
			if f := s.get(a, name); f.Floor != floor {
				s.Errorf("with the floor at %d, %s is told with %d", floor, name, f.Floor)
			}
		}
	}
	s.same("after the floor was raised", s.get(a, "jobs/x").Record, r)
}

func testHighestFloor(s *suite) {
	all := s.openAll()
	for round := range rounds {
		together(racers, func(i int) {
			t := driver.Token(round*100 + (i*5)%racers)
			got, err := all[i%clients].RaiseFloor(s.Context(), t)
			if err != nil || got < t {
				s.Errorf("RaiseFloor(%d) = %d, %v", t, got, err)
			}
		})
		if want := driver.Token(round*100 + racers - 1); s.get(all[0], "jobs/none").Floor != want {
			s.Errorf("the floor is %d, and was raised to %d", s.get(all[0], "jobs/none").Floor, want)
		}
	}
}
