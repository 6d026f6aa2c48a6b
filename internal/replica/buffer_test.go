package replica

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// holdMany claims and releases n names, and claims some of them again.
func (w *world) holdMany(n int) {
	for first := 0; first < n; first += 500 {
		var events []Event
		for i := first; i < min(n, first+500); i++ {
			name, id := fmt.Sprintf("many/%d", i), lessor.ID(1000+3*i)
			events = append(events, Request{ID: uint64(3*i + 1), Command: ownership.Claim{Lease: id, Name: name, TTL: time.Hour, Holder: []byte("once")}})
			if i%3 > 0 {
				events = append(events, Request{ID: uint64(3*i + 2), Command: ownership.Release{Name: name, Lease: id}})
			}
			if i%3 > 1 {
				events = append(events, Request{ID: uint64(3*i + 3), Command: ownership.Claim{Lease: id + 1, Name: name, TTL: time.Hour, Holder: []byte("again")}})
			}
		}
		w.step(events...)
		w.settle()
	}
}

func (w *world) loggedBuffers() (records int) {
	w.t.Helper()
	it, err := w.db.NewIter(record.Family(record.FamilyBuffer))
	if err != nil {
		w.t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		records++
	}
	if err := it.Close(); err != nil {
		w.t.Fatal(err)
	}
	return records
}

// Whether the buffer was only logged when the member ends, was just flushed, or both, all is there when it starts again.
func TestBufferedRecordsSurviveRestarts(t *testing.T) {
	for _, n := range []int{1, 5, 700, record.MaxBuffered} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWorld(t).serve()
			defer func() { w.close() }()
			w.holdMany(n)
			if w.replica.buffer.Len() > record.MaxBuffered {
				t.Errorf("%d buffered records", w.replica.buffer.Len())
			}
			if n < 10 && w.loggedBuffers() == 0 {
				t.Error("there are none on the disk, and nothing is tried here")
			}
			before := w.dump()
			for range 2 {
				if err := w.reopened(); err != nil {
					t.Fatal(err)
				}
				w.serve()
				if after := w.dump(); after != before {
					t.Errorf("after a restart:\n%.500s\nbefore:\n%.500s", after, before)
				}
				if w.loggedBuffers() > 0 {
					t.Error("the buffer is flushed again at each start")
				}
			}
		})
	}
}

// A flush changes nothing that anybody can see, whenever it happens.
func TestFlushChangesNoAnswer(t *testing.T) {
	steps := []entry.Command{
		ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour, Holder: []byte("one")},
		ownership.Claim{Lease: 2, Name: "n", TTL: time.Hour, Holder: []byte("two"), Wait: true},
		ownership.Pin{Name: "n", Reason: "because"},
		ownership.Unpin{Name: "n"},
		ownership.Release{Name: "n", Lease: 1},
		entry.Grant{Lease: 1, TTL: time.Hour}, // the id of a claim that has a record at its key or in the buffer, or had one
		entry.Revoke{Lease: 2},
		ownership.Claim{Lease: 3, Name: "m", TTL: time.Hour},
		ownership.Pin{Name: "m", Reason: "for good"},
		ownership.Unpin{Name: "m"},
		ownership.Release{Name: "m", Lease: 3},
		ownership.Claim{Lease: 3, Name: "m", TTL: time.Minute},
	}
	var never string
	for flushed := range len(steps) + 1 { // before this one
		w := newWorld(t).serve()
		for i, op := range steps {
			if i == flushed-1 {
				w.flush()
			}
			w.do(uint64(i+1), op)
		}
		got := w.dump()
		if flushed == 0 {
			never = got
		}
		for range 2 { // with what was left in the buffer, and without
			if got != never {
				t.Errorf("flushed before step %d:\n%s\nnever flushed:\n%s", flushed, got, never)
			}
			if flushed%2 > 0 {
				w.flush()
			}
			if err := w.reopened(); err != nil {
				t.Fatal(err)
			}
			got = w.serve().dump()
		}
		w.close()
	}
}

// A lease that is claimed and ends while its record is in the buffer leaves nothing behind, wherever the end finds it.
func TestLeaseThatEndsInTheBufferLeavesNoRecord(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	claim, release := ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour}, ownership.Release{Name: "n", Lease: 1}
	w.do(1, claim) // the claim and its release are in batches of their own
	w.do(2, release)
	claim.Lease, release.Lease = 2, 2
	w.step(Request{ID: 3, Command: claim}, Request{ID: 4, Command: release}) // both are in one batch
	w.settle()
	if w.replica.buffer.Has(record.LeaseKey(2)) {
		t.Error("the buffer has what began and ended in one batch")
	}
	w.flush()
	n := 0
	if err := eachLease(w.db, func() { n++ }); err != nil || n != 0 {
		t.Errorf("%d records of leases, %v", n, err)
	}
}

func eachLease(db pebble.Reader, found func()) error {
	it, err := db.NewIter(record.Family(record.FamilyLease))
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		found()
	}
	return it.Close()
}

// After a restart the owner's card is in no memory but the buffer, if the name's record has changed since.
func TestCardIsReadFromTheBuffer(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, ownership.Claim{Lease: 1, Name: "a", TTL: time.Hour, Holder: []byte("card")})
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	for round, known := range []bool{false, true} {
		id := uint64(10 + round)
		state := w.replyTo(id, w.step(Inspection{ID: id, Query: NamesQuery{Names: []string{"a"}}})).Result.(NameStates).Names[0]
		if state.HolderKnown != known || known && string(state.Holder) != "card" {
			t.Errorf("buffered %t: %+v", known, state)
		}
		w.do(2, ownership.Pin{Name: "a", Reason: "stays"})
	}
}
