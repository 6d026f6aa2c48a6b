package claimtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
)

var optionalTests = []test{
	{"BatchIsManySwaps", Batch, testBatch},
	{"BatchesRace", Batch, testBatchesRace},
	{"GatheringIsManyReads", Gather, testGather},
	{"WriteOnlyAboveTheFloor", Bound, testAbove},
	{"Hints", Notify, testHints},
	{"ListenEnds", Notify, testListenEnds},
	{"NamespaceHasOneMode", Judge, testTwoModes},
	{"TheStoreJudges", Judge, testTheStoreJudges},
	{"LeftCountsFromTheLastWrite", Judge, testLeft},
	{"EndedBootIsGone", Local, testGone},
	{"ClockOnlyRises", Clocks, testClockOnlyRises},
	{"ClocksRace", Clocks, testClocksRace},
}

// A write with Above happens only while its token is above the floor, no matter which client raised the floor,
// or when.
func testAbove(s *suite) {
	store, other := s.open(), s.open()
	if b := as[claim.Bounded](s, store, Bound); !b.Bounds() {
		s.Error("a store that is bounded says it is not")
	}
	last := s.put(store, "jobs/x")
	try := func(token backend.Token, keeps, above, should bool) {
		s.Helper()
		if keeps {
			vacant := last
			vacant.Op, vacant.Holder = claim.NewOp(), ""
			if !s.mustSwap(store, last.Op, vacant) {
				s.Fatal("not made vacant")
			}
			last = vacant
		}
		r := record("jobs/x", token)
		r.Pins, r.Past = last.Pins, last.Past
		done, err := store.Swap(s.Context(), claim.Swap{Old: last.Op, Record: r, Owner: true, Keeps: keeps, Above: above})
		if err != nil || done != should {
			s.Fatalf("token %d (keeps: %v, above: %v): %v, %v", token, keeps, above, done, err)
		}
		if done {
			last = r
		}
		s.same("the record", s.mustGet(other, "jobs/x").Record, last)
	}
	for _, keeps := range []bool{true, false} {
		floor := last.Token + 10
		if _, err := other.RaiseFloor(s.Context(), floor); err != nil {
			s.Fatal(err)
		}
		try(floor-1, keeps, true, false)
		try(floor, keeps, true, false)
		try(floor+1, keeps, true, true)
		try(floor-5, keeps, false, true) // a writer without Above has read the floor itself
	}
}

// Each of many swaps is done or not as it would be alone.
func testBatch(s *suite) {
	store, other := s.open(), s.open()
	batch := as[claim.Batcher](s, store, Batch)
	const many = 120
	var swaps []claim.Swap
	var should []bool
	var extended []claim.Record
	kept := make(map[string]claim.Op)
	for i := range many {
		name := fmt.Sprintf("jobs/%03d", i)
		w := claim.Swap{Record: record(name, backend.Token(i+2)), Owner: i%2 == 0}
		done := true
		switch i % 4 {
		case 0: // it is created
		case 1:
			put := s.put(other, name)
			if w.Old = put.Op; i%8 == 1 {
				w.Record, w.Extends = extension(put), true
				extended = append(extended, w.Record)
			}
		case 2: // it exists already
			kept[name], done = s.put(other, name).Op, false
		case 3: // it has another op, or none
			w.Old, done = claim.NewOp(), false
			if i%8 == 3 {
				kept[name] = s.put(other, name).Op
			}
		}
		if done {
			kept[name] = w.Record.Op
		}
		swaps, should = append(swaps, w), append(should, done)
	}
	swaps[0].Record = extremes()[0]
	kept["jobs/000"], kept[swaps[0].Record.Name] = claim.Op{}, swaps[0].Record.Op
	done, err := batch.SwapAll(s.Context(), swaps)
	if err != nil || !slices.Equal(done, should) {
		s.Fatalf("SwapAll: %v, %v; should be %v", done, err, should)
	}
	for name, op := range kept { // order: each name for itself
		if f := s.mustGet(other, name); f.Record.Op != op {
			s.Errorf("%s has op %v, and not %v", name, f.Record.Op, op)
		}
	}
	for _, r := range extended {
		s.same("extended among many", s.mustGet(other, r.Name).Record, r)
	}
	s.same("written among many", s.mustGet(other, swaps[0].Record.Name).Record, swaps[0].Record)
	if done, err := batch.SwapAll(s.Context(), nil); len(done) != 0 || err != nil {
		s.Errorf("SwapAll of nothing: %v, %v", done, err)
	}
}

// Each of many names is returned as it would be alone, in the order of the request.
func testGather(s *suite) {
	store, other := s.open(), s.open()
	gatherer := as[claim.Gatherer](s, store, Gather)
	if _, err := other.RaiseFloor(s.Context(), 42); err != nil {
		s.Fatal(err)
	}
	var names []string
	for i := range 120 {
		name := fmt.Sprintf("jobs/%03d", (i*37)%120)
		if i%3 > 0 {
			s.put(other, name)
		}
		names = append(names, name)
	}
	extreme := extremes()[0]
	if done, err := other.Swap(s.Context(), claim.Swap{Record: extreme, Owner: true}); !done || err != nil {
		s.Fatal(done, err)
	}
	names = append(names, extreme.Name)
	damaged := names[1]
	if s.config.Damage != nil {
		s.config.Damage(s, s.namespace, damaged)
	}
	all, err := gatherer.GetAll(s.Context(), names)
	if err != nil || len(all) != len(names) {
		s.Fatalf("GetAll of %d: %d, %v", len(names), len(all), err)
	}
	for i, name := range names {
		if name == damaged && s.config.Damage != nil {
			s.is("a damaged record among many", all[i].Err, backend.ErrCorrupt)
			continue
		}
		f, err := other.Get(s.Context(), name)
		if err != nil || all[i].Err != nil || all[i].Floor != f.Floor || all[i].Record.Name != name {
			s.Fatalf("%s: %+v, and %v; %+v", name, all[i], err, f)
		}
		s.same("read among many", all[i].Record, f.Record)
	}
	if all, err := gatherer.GetAll(s.Context(), nil); len(all) != 0 || err != nil {
		s.Errorf("GetAll of nothing: %v, %v", all, err)
	}
}

// extension returns a record that extends another.
func extension(r claim.Record) claim.Record {
	r.Op, r.Domain, r.TTL = claim.NewOp(), "another machine", 77
	r.Written, r.Expiry = clock.Instant{Raw: 11, Boot: 22}, clock.Instant{Raw: math.MaxInt64, Boot: 33}
	return r
}

// Batches with the same names in different orders neither block each other for ever nor both win.
func testBatchesRace(s *suite) {
	all := s.openAll()
	const names = 20
	last := make([]claim.Record, names)
	for range rounds {
		wins, next := make([][]bool, racers), make([][]claim.Record, racers)
		together(racers, func(i int) {
			swaps := make([]claim.Swap, names)
			next[i], wins[i] = make([]claim.Record, names), make([]bool, names)
			at := func(j int) int { return (j*(2*(i%2)*(names/2-1)+1) + i) % names } // forwards or backwards
			for j := range swaps {
				n := at(j)
				swaps[j] = claim.Swap{Record: record(fmt.Sprintf("jobs/%d", n), 1)}
				if last[n].Exists() {
					swaps[j] = claim.Swap{Old: last[n].Op, Record: extension(last[n]), Extends: true}
				}
				next[i][n] = swaps[j].Record
			}
			done, err := as[claim.Batcher](s, all[i%clients], Batch).SwapAll(s.Context(), swaps)
			if err != nil || len(done) != names {
				s.Errorf("SwapAll: %v, %v", done, err)
				return
			}
			for j, ok := range done {
				wins[i][at(j)] = ok
			}
		})
		for n := range names {
			winners := 0
			before := last[n]
			for i := range racers {
				if wins[i][n] {
					winners++
					last[n] = next[i][n]
				}
			}
			if winners != 1 {
				s.Fatalf("%d of %d writes of one name from one op were done", winners, racers)
			}
			if got := s.mustGet(all[0], fmt.Sprintf("jobs/%d", n)).Record; got.Op != last[n].Op || before.Exists() && got.Incarnation != before.Incarnation {
				s.Fatalf("there is %+v, and the winner's is %+v", got, last[n])
			}
		}
	}
}

// hints listens until the test ends, and returns a channel of the names.
func (s *suite) hints(store claim.Store) <-chan string {
	s.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	names, ended := make(chan string, 1000), make(chan error, 1)
	n := as[claim.Notifier](s, store, Notify)
	go func() {
		ended <- n.Listen(ctx, func(name string) {
			select {
			case names <- name:
			default: // one hint more or less does not matter
			}
		})
	}()
	s.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(s.config.Slack):
			s.Error("Listen does not return when its context has ended")
		}
	})
	return names
}

// hint waits for a hint about a name. An empty name waits for the hint that comes when the store begins to
// listen.
func (s *suite) hint(names <-chan string, name string) {
	s.Helper()
	for late := time.After(s.config.Slack); ; {
		select {
		case got := <-names:
			if got == "" || got == name || name == "" {
				return
			}
		case <-late:
			s.Fatalf("no hint about %q came in %v", name, s.config.Slack)
		}
	}
}

func testHints(s *suite) {
	writer := s.open()
	first, second := s.hints(s.open()), s.hints(writer)
	s.hint(first, "")
	s.hint(second, "")
	var last claim.Op
	for i := range 3 {
		r := record("jobs/x", backend.Token(i+1))
		if !s.mustSwap(writer, last, r) {
			s.Fatal("not written")
		}
		last = r.Op
		s.hint(first, "jobs/x")
		s.hint(second, "jobs/x")
	}
	odd := record("it's \"odd\", 世界", 1)
	s.mustSwap(writer, claim.Op{}, odd)
	s.hint(first, odd.Name)
	long := record(oddNames[len(oddNames)-8], 1) // the longest possible name
	for _, name := range oddNames {
		if len(name) == backend.MaxName {
			long.Name = name
		}
	}
	s.mustSwap(writer, claim.Op{}, long)
	s.hint(first, long.Name)
	if b, ok := writer.(claim.Batcher); ok {
		r := record("jobs/y", 1)
		if _, err := b.SwapAll(s.Context(), []claim.Swap{{Record: r, Owner: true}}); err != nil {
			s.Fatal(err)
		}
		s.hint(first, "jobs/y")
	}
}

func testListenEnds(s *suite) {
	store := s.open()
	n := as[claim.Notifier](s, store, Notify)
	ended, begun := make(chan error, 1), make(chan string, 100)
	go func() {
		ended <- n.Listen(s.Context(), func(name string) {
			select {
			case begun <- name:
			default:
			}
		})
	}()
	s.hint(begun, "")
	if err := store.Close(s.Context()); err != nil {
		s.Fatal(err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, backend.ErrClosed) {
			s.Errorf("Listen on a store that is closed: %v", err)
		}
	case <-time.After(s.config.Slack):
		s.Error("Listen does not return when its store is closed")
	}
}

// A namespace has one mode.
func testTwoModes(s *suite) {
	for _, mode := range []bool{false, true} {
		namespace := newNamespace()
		store := s.openIn(namespace, mode)
		if got := as[claim.Judge](s, store, Judge).Judges(); got != mode {
			s.Errorf("opened with store-clock mode %v, it says %v", mode, got)
		}
		s.put(store, "jobs/x")
		other, err := s.config.Open(s, namespace, !mode)
		if err == nil {
			_ = other.Close(s.Context())
		}
		if !errors.Is(err, backend.ErrInvalid) {
			s.Errorf("a namespace with store-clock mode %v was opened in the other: %v", mode, err)
		}
	}
}

// In store-clock mode the store refuses a write that needs an end which has not come.
func testTheStoreJudges(s *suite) {
	a, b := s.openIn(s.namespace, true), s.openIn(s.namespace, true)
	first := record("jobs/x", 1)
	first.TTL = 600 * time.Millisecond
	before := time.Now()
	if !s.mustSwap(a, claim.Op{}, first) {
		s.Fatal("not written")
	}
	ended := func(w claim.Swap) bool {
		w.Ended = true
		done, err := b.Swap(s.Context(), w)
		if err != nil {
			s.Fatalf("Swap: %v", err)
		}
		return done
	}
	second := record("jobs/x", 2)
	second.TTL = time.Hour
	if ended(claim.Swap{Old: first.Op, Record: second}) && time.Since(before) < first.TTL {
		s.Fatal("a record that lasts was written over as if it had ended")
	}
	for !ended(claim.Swap{Old: first.Op, Record: second}) {
		if time.Since(before) > first.TTL+s.config.Slack {
			s.Fatalf("a record of %v has not ended after %v", first.TTL, time.Since(before))
		}
		time.Sleep(10 * time.Millisecond)
	}
	if early := time.Since(before); early < first.TTL {
		s.Errorf("a record of %v had ended after %v", first.TTL, early)
	}
	if ended(claim.Swap{Old: second.Op, Record: record("jobs/x", 3)}) {
		s.Error("a record that has just been written was written over as if it had ended")
	}
	if ended(claim.Swap{Old: first.Op, Record: record("jobs/x", 3)}) {
		s.Error("a record was written over from an op that was replaced")
	}
	if !s.mustSwap(a, second.Op, record("jobs/x", 3)) {
		s.Error("a write that needs no end was refused")
	}
	if bt, ok := a.(claim.Batcher); ok {
		lasting := record("jobs/y", 1)
		lasting.TTL = time.Hour
		s.mustSwap(a, claim.Op{}, lasting)
		done, err := bt.SwapAll(s.Context(), []claim.Swap{{Old: lasting.Op, Record: record("jobs/y", 2), Ended: true}})
		if err != nil || done[0] {
			s.Errorf("among many, a record that lasts was written over as if it had ended: %v, %v", done, err)
		}
	}
}

// Left counts from the last write.
func testLeft(s *suite) {
	store := s.openIn(s.namespace, true)
	r := record("jobs/x", 1)
	r.TTL = time.Hour
	before := time.Now()
	s.mustSwap(store, claim.Op{}, r)
	check := func() {
		s.Helper()
		all, err := store.List(s.Context(), "", "", 1)
		if err != nil || len(all) != 1 {
			s.Fatalf("List: %+v, %v", all, err)
		}
		for _, left := range []time.Duration{s.mustGet(store, "jobs/x").Left, all[0].Left} {
			if slack := time.Since(before) + 50*time.Millisecond; left > r.TTL+slack || left < r.TTL-slack {
				s.Errorf("%v after it was written for %v, %v are left", time.Since(before), r.TTL, left)
			}
		}
	}
	check()
	next := record("jobs/x", 2)
	next.TTL = 2 * time.Hour
	before = time.Now()
	s.mustSwap(store, r.Op, next)
	r = next
	check()
	gone := record("jobs/x", 3)
	gone.TTL = 0
	s.mustSwap(store, next.Op, gone)
	time.Sleep(20 * time.Millisecond)
	if left := s.mustGet(store, "jobs/x").Left; left >= 0 {
		s.Errorf("of a record for no time %v are left", left)
	}
}

func testGone(s *suite) {
	local := as[claim.Local](s, s.open(), Local)
	for _, d := range []clock.Domain{clock.UnknownDomain, clock.SystemDomain(), "another machine"} {
		if local.Gone(d) {
			s.Errorf("domain %q is said to be gone", d)
		}
		if here := local.Domain(d); local.Gone(here) || (here == clock.UnknownDomain) != (d == clock.UnknownDomain) || here != local.Domain(d) {
			s.Errorf("domain %q is written as %q", d, here)
		}
	}
	if s.config.OtherBoot == "" {
		s.Fatal("a store that can do \"local\" needs Config.OtherBoot")
	}
	if !local.Gone(s.config.OtherBoot) {
		s.Errorf("domain %q is of another boot, and not said to be gone", s.config.OtherBoot)
	}
}
