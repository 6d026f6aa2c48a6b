package claimtest

import (
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

func testClockOnlyRises(s *suite) {
	store, other := s.open(), s.open()
	writer, reader := as[claim.Clocks](s, store, Clocks), as[claim.Clocks](s, other, Clocks)
	at := func(d clock.Domain) (clock.Instant, bool) {
		s.Helper()
		i, known, err := reader.Acknowledged(s.Context(), d)
		if err != nil {
			s.Fatalf("Acknowledged: %v", err)
		}
		return i, known
	}
	if i, known := at("one"); known {
		s.Errorf("a domain that never wrote has a clock record: %v", i)
	}
	for _, c := range []struct{ now, is clock.Instant }{
		{clock.Instant{Raw: -5, Boot: -7}, clock.Instant{Raw: -5, Boot: -7}},
		{clock.Instant{Raw: 10, Boot: 20}, clock.Instant{Raw: 10, Boot: 20}},
		{clock.Instant{Raw: 5, Boot: 15}, clock.Instant{Raw: 10, Boot: 20}},
		{clock.Instant{Raw: 30, Boot: 15}, clock.Instant{Raw: 30, Boot: 20}},
		{clock.Instant{Raw: 15, Boot: 1 << 62}, clock.Instant{Raw: 30, Boot: 1 << 62}},
	} {
		if err := writer.Acknowledge(s.Context(), "one", c.now); err != nil {
			s.Fatalf("Acknowledge: %v", err)
		}
		if i, known := at("one"); !known || i != c.is {
			s.Errorf("after %v the clock record is %v, and not %v", c.now, i, c.is)
		}
	}
	for _, d := range []clock.Domain{"two", "One", "one "} {
		if i, known := at(d); known {
			s.Errorf("domain %q has the clock record of another: %v", d, i)
		}
	}
	if names := s.namesIn(store, "", "", 10); len(names) != 0 {
		s.Errorf("List returns clock records, and must not: %q", names)
	}
}

func testClocksRace(s *suite) {
	all := s.openAll()
	together(racers, func(i int) {
		c := as[claim.Clocks](s, all[i%clients], Clocks)
		for n := range rounds {
			at := clock.Instant{Raw: int64(n*racers + i), Boot: int64((rounds-n)*racers + i)}
			if err := c.Acknowledge(s.Context(), "one", at); err != nil {
				s.Errorf("Acknowledge: %v", err)
			}
		}
	})
	want := clock.Instant{Raw: rounds*racers - 1, Boot: rounds*racers + racers - 1}
	if at, known, err := as[claim.Clocks](s, all[0], Clocks).Acknowledged(s.Context(), "one"); at != want || !known || err != nil {
		s.Errorf("the clock record is %v, %v, %v; and should be %v", at, known, err, want)
	}
}
