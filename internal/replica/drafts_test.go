package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// holdMany has so many names held and let go, and some of them held again.
func (w *world) holdMany(n int) {
	for first := 0; first < n; first += 500 {
		var events []Event
		for i := first; i < min(n, first+500); i++ {
			name, id := fmt.Sprintf("many/%d", i), lessor.ID(1000+3*i)
			events = append(events, Request{uint64(3*i + 1), ownership.Claim{Lease: id, Name: name, TTL: time.Hour, Holder: []byte("once")}})
			if i%3 > 0 {
				events = append(events, Request{uint64(3*i + 2), ownership.Release{Name: name, Lease: id}})
			}
			if i%3 > 1 {
				events = append(events, Request{uint64(3*i + 3), ownership.Claim{Lease: id + 1, Name: name, TTL: time.Hour, Holder: []byte("again")}})
			}
		}
		w.step(events...)
		w.settle()
	}
}

func (w *world) draftsOnDisk() (records int) {
	w.t.Helper()
	it, err := w.db.NewIter(family(familyDraft))
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

// Whether drafts are on the disk when the member ends, were just filed, or both, all is there when it starts again.
func TestDraftsSurvive(t *testing.T) {
	for _, n := range []int{1, 5, 700, maxDrafts} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := newWorld(t).serve()
			defer func() { w.close() }()
			w.holdMany(n)
			if len(w.replica.drafts.of) > maxDrafts {
				t.Errorf("%d drafts", len(w.replica.drafts.of))
			}
			if n < 10 && w.draftsOnDisk() == 0 {
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
				if w.draftsOnDisk() > 0 {
					t.Error("drafts are filed again at each start")
				}
			}
		})
	}
}

// Filing changes nothing that anybody can see, whenever it happens.
func TestFilingShowsNowhere(t *testing.T) {
	steps := []Op{
		ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour, Holder: []byte("one")},
		ownership.Claim{Lease: 2, Name: "n", TTL: time.Hour, Holder: []byte("two"), Wait: true},
		ownership.Pin{Name: "n", Reason: "because"},
		ownership.Unpin{Name: "n"},
		ownership.Release{Name: "n", Lease: 1},
		Grant{1, time.Hour}, // the id of a claim that has a record, or a draft, or had one
		Revoke{2},
		ownership.Claim{Lease: 3, Name: "m", TTL: time.Hour},
		ownership.Pin{Name: "m", Reason: "for good"},
		ownership.Unpin{Name: "m"},
		ownership.Release{Name: "m", Lease: 3},
		ownership.Claim{Lease: 3, Name: "m", TTL: time.Minute},
	}
	var never string
	for filed := range len(steps) + 1 { // before this one
		w := newWorld(t).serve()
		for i, op := range steps {
			if i == filed-1 {
				w.file()
			}
			w.do(uint64(i+1), op)
		}
		got := w.dump()
		if filed == 0 {
			never = got
		}
		for range 2 { // with what was left as drafts, and without
			if got != never {
				t.Errorf("filed before step %d:\n%s\nnever filed:\n%s", filed, got, never)
			}
			if filed%2 > 0 {
				w.file()
			}
			if err := w.reopened(); err != nil {
				t.Fatal(err)
			}
			got = w.serve().dump()
		}
		w.close()
	}
}

// A lease that is claimed and ends while it is a draft leaves nothing behind, wherever the end finds it.
func TestShortLeasesLeaveNothing(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	claim, release := ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour}, ownership.Release{Name: "n", Lease: 1}
	w.do(1, claim) // in two batches
	w.do(2, release)
	claim.Lease, release.Lease = 2, 2
	w.step(Request{3, claim}, Request{4, release}) // in one
	w.settle()
	if w.replica.drafts.of[string(leaseKey(2))] != nil {
		t.Error("there is a draft of what began and ended in one batch")
	}
	w.file()
	n := 0
	if err := eachLease(w.db, func() { n++ }); err != nil || n != 0 {
		t.Errorf("%d records of leases, %v", n, err)
	}
}

func eachLease(db pebble.Reader, found func()) error {
	it, err := db.NewIter(family(familyLease))
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		found()
	}
	return it.Close()
}

// What was never written as drafts is not filed.
func TestDamagedDrafts(t *testing.T) {
	for what, text := range map[string]string{
		"a kind that there is not":   "\x02\x01n\x00",
		"no key":                     "\x00\x00\x00",
		"a key that ends early":      "\x00\x09n",
		"a value that ends early":    "\x00\x01n\x09abc",
		"no value":                   "\x00\x01n",
		"a record of something else": "\x00\x02rh\x00",
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t).serve()
			if err := w.db.Set(numbered(familyDraft, 1<<40), []byte(text), pebble.Sync); err != nil {
				t.Fatal(err)
			}
			err := w.reopened()
			defer w.close()
			if damaged := (*DamagedError)(nil); !errors.As(err, &damaged) {
				t.Errorf("opened with %v", err)
			}
		})
	}
}

// After a restart the owner's card is in no memory but the drafts, if the name's record has changed since.
func TestCardIsReadFromDrafts(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, ownership.Claim{Lease: 1, Name: "a", TTL: time.Hour, Holder: []byte("card")})
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	for round, known := range []bool{false, true} {
		id := uint64(10 + round)
		state := w.reply(id, w.step(Inspection{id, NamesQuery{[]string{"a"}}})).Result.(NameStates).Names[0]
		if state.HolderKnown != known || known && string(state.Holder) != "card" {
			t.Errorf("drafted %t: %+v", known, state)
		}
		w.do(2, ownership.Pin{Name: "a", Reason: "stays"})
	}
}
