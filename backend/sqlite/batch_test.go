package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
)

// atOnce makes writes wait until all have arrived, and then lets them go.
func (f *file) atOnce(writes ...func()) {
	f.writerSlot <- struct{}{}
	var all sync.WaitGroup
	for _, write := range writes {
		all.Go(write)
	}
	f.waiting(len(writes))
	<-f.writerSlot
	all.Wait()
}

// waiting returns the waiting writes when there are n of them.
func (f *file) waiting(n int) []*pendingWrite {
	for ; ; time.Sleep(time.Millisecond) {
		f.queue.mu.Lock()
		all := slices.Clone(f.queue.waits)
		f.queue.mu.Unlock()
		if len(all) == n {
			return all
		}
	}
}

// A waiting renewal goes before all other writes that came earlier, and does not share a transaction with them.
func TestRenewalsGoBeforeOtherWrites(t *testing.T) {
	s := opened(t, newPath(t), Config{})
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := claim.Request{Name: "held", ID: backend.ID{1}, Holder: backend.Holder{ID: "a"}, TTL: time.Minute}
	l, err := c.Claim(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	s.file.writerSlot <- struct{}{}
	for i := range 5 {
		all.Go(func() { mustSwap(t, s, claim.Op{}, record(fmt.Sprint("x", i), 1)) })
	}
	first := s.file.waiting(5)[0]
	all.Go(func() {
		if err := c.Extend(t.Context(), l, 0); err != nil {
			t.Error(err)
		}
	})
	s.file.waiting(6)
	renewal := s.file.queue.takeRenewal()
	if renewal == nil || !renewal.renews() {
		t.Fatal("the renewal is not known as one")
	}
	s.file.queue.add(renewal)
	s.file.takeTurn(first) // the turn of this write
	select {
	case <-renewal.done:
	default:
		t.Error("the renewal was not written before the others")
	}
	if left := s.file.waiting(0); len(left) > 0 {
		t.Errorf("%d writes still wait", len(left))
	}
	<-s.file.writerSlot
	all.Wait()
}

// A claim that renewals have delayed for a third of its TTL goes before the next renewal, even in that
// renewal's turn. Before that it waits.
func TestClaimsWaitForRenewalsForAThirdOfTheTTL(t *testing.T) {
	const ttl = time.Minute
	s := opened(t, newPath(t), Config{})
	now := time.Now()
	s.file.now = func() time.Time { return now }
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const renewals = 6
	var leases [renewals]*claim.Lease
	request := func(i byte) claim.Request {
		return claim.Request{Name: fmt.Sprint("name", i), ID: backend.ID{i + 1}, Holder: backend.Holder{ID: "a"}, TTL: ttl}
	}
	for i := range leases {
		if leases[i], err = c.Claim(t.Context(), request(byte(i))); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	s.file.writerSlot <- struct{}{}
	for i := range leases {
		all.Go(func() {
			if err := c.Extend(t.Context(), leases[i], 0); err != nil {
				t.Error(err)
			}
		})
	}
	s.file.waiting(renewals)
	all.Go(func() {
		if _, err := c.Claim(t.Context(), request(renewals)); err != nil {
			t.Error(err)
		}
	})
	waits := s.file.waiting(renewals + 1)
	claims := slices.IndexFunc(waits, func(w *pendingWrite) bool { return !w.renews() })
	written := func(w *pendingWrite) bool {
		select {
		case <-w.done:
			return true
		default:
			return false
		}
	}
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, false}, {ttl/3 - 1, false}, {1, true}} {
		now = now.Add(step.after)
		turn := slices.IndexFunc(waits, func(w *pendingWrite) bool { return w.renews() && !written(w) })
		s.file.takeTurn(waits[turn])
		if got := written(waits[claims]); got != step.want {
			t.Errorf("after %v more the claim is written: %v, want %v", step.after, got, step.want)
		}
	}
	<-s.file.writerSlot
	all.Wait()
}

// Writes that wait together are committed together in WAL mode. Each is done or not as if it were alone.
func TestWaitingWritesAreCommittedTogether(t *testing.T) {
	const many = 20
	const frame = 4096 + 24 // of the log; a commit writes at least one
	path := newPath(t)
	s := opened(t, path, Config{})
	var first [many]claim.Record
	create := make([]func(), many)
	for i := range many {
		first[i] = record(fmt.Sprintf("x%02d", i), 1)
		create[i] = func() { mustSwap(t, s, claim.Op{}, first[i]) }
	}
	s.file.atOnce(create...)
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	won := make([]bool, 2*many)
	var race []func()
	for i := range 2 * many { // two for each name, one of which comes too late
		race = append(race, func() {
			var err error
			won[i], err = s.Swap(t.Context(), claim.Swap{Old: first[i/2].Op, Record: record(first[i/2].Name, 2), Owner: true})
			if err != nil {
				t.Error(err)
			}
		})
	}
	s.file.atOnce(race...)
	if frames := (size() - before) / frame; frames > many/2 {
		t.Errorf("%d writes took %d frames of the log", many, frames)
	}
	for i := range many {
		if won[2*i] == won[2*i+1] {
			t.Errorf("of two writes to %s, %v and %v were done", first[i].Name, won[2*i], won[2*i+1])
		}
	}
}

// A write that fails does not make the others fail, and one whose context ends before its turn is not written.
func TestFailureInABatchIsOfOneWrite(t *testing.T) {
	s := opened(t, newPath(t), Config{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	s.file.writerSlot <- struct{}{}
	var late sync.WaitGroup
	late.Go(func() {
		_, err := s.Swap(ctx, claim.Swap{Record: record("late", 1)})
		gone <- err
	})
	s.file.waiting(1)
	cancel()
	if err := <-gone; !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrUnknownOutcome) {
		t.Errorf("a write that was never begun: %v", err)
	}
	late.Wait()
	<-s.file.writerSlot
	var bad error
	s.file.atOnce(
		func() { mustSwap(t, s, claim.Op{}, record("a", 1)) },
		func() { _, bad = s.file.Query(t.Context(), "INSERT INTO leasekeeper_lease (ns) VALUES ('x')") },
		func() { mustSwap(t, s, claim.Op{}, record("b", 1)) })
	if bad == nil {
		t.Error("what cannot be written was")
	}
	all, err := s.List(t.Context(), "", "", 10)
	if err != nil || len(all) != 2 || all[0].Record.Name != "a" || all[1].Record.Name != "b" {
		t.Errorf("%+v, %v", all, err)
	}
}

// If the batch cannot be committed no caller is told that its write happened.
func TestUncommittedBatchReportsNoWrite(t *testing.T) {
	path := newPath(t)
	s := opened(t, path, Config{Patience: time.Millisecond})
	tx, err := raw(t, path, "&_txlock=exclusive").Begin()
	if err != nil {
		t.Fatal(err)
	}
	var failed [2]error
	s.file.atOnce(
		func() { _, failed[0] = s.Swap(t.Context(), claim.Swap{Record: record("a", 1)}) },
		func() { _, failed[1] = s.Swap(t.Context(), claim.Swap{Record: record("b", 1)}) })
	for _, err := range failed {
		says(t, err, backend.ErrUnavailable, "open transaction")
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	mustSwap(t, s, claim.Op{}, record("a", 1))
}

// A caller that stops waiting for another writer's batch does not know the outcome.
func TestWriteUnderWayHasAnUnknownOutcome(t *testing.T) {
	path := newPath(t)
	s, err := New(t.Context(), raw(t, path, "&_pragma=journal_mode(WAL)"+durable), Config{})
	if err != nil {
		t.Fatal(err)
	}
	tx, err := raw(t, path, "&_txlock=exclusive").Begin() // for which they wait
	if err != nil {
		t.Fatal(err)
	}
	s.file.writerSlot <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	answer := make(chan error, 1)
	all.Go(func() {
		_, err := s.Swap(ctx, claim.Swap{Record: record("x", 1)})
		answer <- err
	})
	w := s.file.waiting(1)[0]
	all.Go(func() { s.file.takeTurn(w) }) // another writer takes the turn
	s.file.waiting(0)
	cancel()
	if err := <-answer; !errors.Is(err, backend.ErrUnknownOutcome) || !errors.Is(err, context.Canceled) {
		t.Errorf("what was begun: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	<-s.file.writerSlot
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
