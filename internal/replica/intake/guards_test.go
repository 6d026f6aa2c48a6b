package intake

import (
	"fmt"
	"testing"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// Each test here names guards of this package, and fails if exactly one of them is removed.

// A command that is larger than an entry should be has an entry of its own, and smaller ones share one within bounds.
func TestEntriesAreBoundedButNeverEmpty(t *testing.T) {
	of := func(size, weight int) Pending { return Pending{Prepared: entry.Prepared{Size: size}, weight: weight} }
	for _, c := range []struct {
		commands []Pending
		want     int
	}{
		{nil, 0},
		{[]Pending{of(100, 100), of(0, 0)}, 1},
		{[]Pending{of(5, 0), of(5, 0), of(1, 0)}, 2},
		{[]Pending{of(0, 5), of(0, 5), of(0, 1)}, 2},
	} {
		if got := fitting(c.commands, 10, 10); got != c.want {
			t.Errorf("of %+v there fit %d, not %d", c.commands, got, c.want)
		}
	}
}

// The memory that is kept for later claims is bounded.
func TestSpareClaimsAreBounded(t *testing.T) {
	f := newInFlight()
	for range 2 * maxSpare {
		f.recycle(Pending{flight: new(claimInFlight)})
	}
	if n := len(f.spares); n != maxSpare {
		t.Errorf("%d are kept", n)
	}
}

// A large queue is not kept for reuse.
func TestLargeQueueIsNotReused(t *testing.T) {
	q := New()
	if q.Recycle(make([]Pending, 0, maxSpare+1)); len(q.spares) != 0 {
		t.Error("it is kept")
	}
	if q.Recycle(make([]Pending, 0, maxSpare)); len(q.spares) != 1 {
		t.Error("a small queue is not kept")
	}
}

// The bulk queue is bounded in commands and in bytes, and small commands still have room when it is full.
func TestBulkQueueIsBounded(t *testing.T) {
	interval := keyspace.DeleteRequest{Key: []byte("a"), End: []byte("b")}
	large := keyspace.PutRequest{Key: []byte("k"), Value: make([]byte, 1<<20)}
	for what, c := range map[string]struct {
		fills   entry.Command
		reached func(bulkQueue) bool
	}{
		"commands": {interval, func(b bulkQueue) bool { return b.length() == maxBulkQueue }},
		"bytes":    {large, func(b bulkQueue) bool { return b.bytes() >= maxBulkQueueBytes }},
	} {
		q := New()
		for client := 0; !q.Full(fmt.Sprint(client), access.Caller{}, c.fills); client++ {
			q.Add(clock.Instant{}, fmt.Sprint(client), q.Prepare(uint64(client+1), c.fills, access.Caller{}))
		}
		if !c.reached(q.bulk) {
			t.Errorf("a new client is refused while %d commands with %d bytes wait", q.bulk.length(), q.bulk.bytes())
		}
		if !q.Full("new", access.Caller{}, interval) {
			t.Errorf("more is taken on than the bound in %s", what)
		}
		if q.Full("new", access.Caller{}, keyspace.PutRequest{Key: []byte("k")}) {
			t.Errorf("with the bound in %s reached, a small put has no room", what)
		}
	}
}

// A claim that is done makes room for another claim of its lease only if that did not come meanwhile.
func TestOtherClaimOfALeaseStaysInFlight(t *testing.T) {
	q := New()
	first := q.Prepare(1, ownership.Claim{Name: "a", Lease: 7}, access.Caller{})
	second := q.Prepare(2, ownership.Claim{Name: "b", Lease: 7}, access.Caller{})
	q.Add(clock.Instant{}, "c", first)
	q.Add(clock.Instant{}, "c", second)
	q.Done([]Pending{first})
	if joined, _ := q.Join(3, ownership.Claim{Name: "b", Lease: 7}, ""); !joined {
		t.Error("the second claim is in flight, and a repeated one does not join it")
	}
	q.Done([]Pending{second})
	if joined, _ := q.Join(4, ownership.Claim{Name: "b", Lease: 7}, ""); joined {
		t.Error("a claim joins one that is done")
	}
}
