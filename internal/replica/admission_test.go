package replica

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// grants returns n requests for leases with ids from first on.
func grants(first, n int, ttl time.Duration) []Event {
	var events []Event
	for id := first; id < first+n; id++ {
		events = append(events, Request{ID: uint64(id), Command: entry.Grant{Lease: lessor.ID(id), TTL: ttl}})
	}
	return events
}

// tally counts the replies by their error.
func tally(effects []Effect) map[error]int {
	counts := make(map[error]int)
	for _, e := range effects {
		if reply, ok := e.(Reply); ok {
			counts[reply.Err]++
		}
	}
	return counts
}

func allRenewed(effects []Effect) bool {
	return slices.ContainsFunc(effects, func(e Effect) bool {
		r, ok := e.(Renewed)
		return ok && r.Leases[0].Err == nil
	})
}

// While a write of the log takes long, what would make more work is turned away first; renewals are
// answered at once all the same, and the lessor's own commands are taken on.
func TestLongQueueTurnsGrantsAwayFirst(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	const ttl = 10 * time.Second
	w.do(1, entry.Grant{Lease: 1, TTL: ttl})
	w.step(Request{ID: 2, Command: putKey("slow")}) // its write is not reported
	fill := func(n int, op func(i int) entry.Command) (refused int) {
		var events []Event
		for i := range n {
			events = append(events, Request{ID: uint64(1000 + i), Command: op(i)})
		}
		counts := tally(w.step(events...))
		if len(counts) > 1 || len(counts) == 1 && counts[ErrTooManyRequests] == 0 {
			t.Fatalf("replies %v", counts)
		}
		return counts[ErrTooManyRequests]
	}
	for _, step := range []struct {
		mark int
		op   func(int) entry.Command
	}{
		{intake.MaxQueueForGrants, func(i int) entry.Command { return entry.Grant{Lease: lessor.ID(1000 + i), TTL: ttl} }},
		{intake.MaxQueueForWrites, func(i int) entry.Command { return putKey(fmt.Sprint(i)) }},
		{intake.MaxQueue, func(int) entry.Command { return keyspace.DeleteRequest{Key: []byte("x")} }},
	} {
		room := step.mark - w.replica.intake.Short()
		if refused := fill(room+5, step.op); refused != 5 || w.replica.intake.Short() != step.mark {
			t.Fatalf("%d refused and %d queued, want 5 and %d", refused, w.replica.intake.Short(), step.mark)
		}
	}
	if !allRenewed(w.step(Renewal{ID: 7, Leases: []lessor.ID{1}})) {
		t.Error("a renewal waits for the queue")
	}
	w.clock.Advance(ttl + time.Second)
	w.step(Tick{})
	w.clock.Advance(TickInterval + 1)
	w.step(Tick{})
	if w.replica.intake.Short() <= intake.MaxQueue {
		t.Error("the end of a lease is not taken on")
	}
	w.settle()
	if _, ok := w.replica.Lessor().Lookup(1); ok {
		t.Error("the lease did not end")
	}
}

// However many grants come at once, there are never more leases than allowed, and as many as that.
func TestLeasesNeverExceedTheirLimit(t *testing.T) {
	w := newWorld(t)
	w.close()
	w.maxLeases = 10
	w.start()
	w.serve()
	defer w.close()
	all := append(w.step(grants(1, 15, time.Hour)...), w.step(grants(16, 15, time.Hour)...)...)
	all = append(all, w.settle()...)
	counts := tally(all)
	if counts[nil] != 10 || counts[ErrTooManyLeases] != 20 || w.replica.Lessor().Len() != 10 {
		t.Fatalf("replies %v, %d leases", counts, w.replica.Lessor().Len())
	}
	if err := w.do(100, entry.Grant{Lease: 1, TTL: time.Hour}).Err; !errors.Is(err, lessor.ErrExists) {
		t.Errorf("an id that is taken: %v", err)
	}
	// A grant that fails leaves room, and so does a lease that has ended.
	for i := range 3 {
		if err := w.do(uint64(200+i), entry.Revoke{Lease: lessor.ID(1 + i)}).Err; err != nil {
			t.Fatal(err)
		}
		if err := w.do(uint64(300+i), entry.Grant{Lease: lessor.ID(500 + i), TTL: time.Hour}).Err; err != nil {
			t.Errorf("after a revoke: %v", err)
		}
		if err := w.do(uint64(400+i), entry.Grant{Lease: lessor.ID(600 + i), TTL: time.Hour}).Err; !errors.Is(err, ErrTooManyLeases) {
			t.Errorf("beyond the limit: %v", err)
		}
	}
	if w.replica.intake.Making() != 0 {
		t.Errorf("%d grants count as under way", w.replica.intake.Making())
	}
	// A lower limit after a restart ends nothing.
	w.close()
	w.maxLeases = 2
	w.start()
	w.serve()
	if n := w.replica.Lessor().Len(); n != 10 {
		t.Errorf("%d leases are left", n)
	}
	if !allRenewed(append(w.step(Renewal{ID: 1, Leases: []lessor.ID{10}}), w.advance(TickInterval)...)) {
		t.Error("a lease from before is not renewed")
	}
}

// Grants that are given up no longer count.
func TestFailedGrantsDoNotCountAsLeases(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.replica.cfg.MaxLeases = 3
	w.step(grants(1, 5, time.Hour)...)
	w.replica.fail(w.replica.intake.Drain(), ErrNoLeader)
	if w.replica.intake.Making() != 0 {
		t.Errorf("%d grants count as under way", w.replica.intake.Making())
	}
}
