package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// reopened starts again from all that was written.
func (w *world) reopened() error {
	w.t.Helper()
	if err := w.db.Flush(); err != nil {
		w.t.Fatal(err)
	}
	w.close()
	return w.tryOpen()
}

// Keys that waited for a name before there were records get records when the member starts.
func TestKeysOfFormerVersionsGetRecords(t *testing.T) {
	w := newWorld(t).serve()
	w.do(1, entry.Grant{Lease: 1, TTL: time.Hour})
	w.do(2, entry.Grant{Lease: 2, TTL: time.Hour})
	w.do(3, keyspace.PutRequest{Key: []byte("n/1"), Value: []byte("one"), Lease: 1})
	w.do(4, keyspace.PutRequest{Key: []byte("n/2"), Lease: 2})
	w.flush()
	if err := w.db.Delete(record.NameKey("n"), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	defer func() { w.close() }()
	w.serve()
	got := w.replyTo(5, w.step(Inspection{ID: 5, Query: NamesQuery{Names: []string{"n"}}})).Result.(NameStates).Names[0]
	if text := showState(got); !strings.HasPrefix(text, "n is held by lease 1, token 2,") || got.Waiting != 1 || got.Revision != 2 {
		t.Errorf("got %s, %+v", text, got)
	}
	before := w.dump()
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	if after := w.dump(); after != before {
		t.Errorf("at the next start:\n%s\nbefore:\n%s", after, before)
	}
	w.do(6, entry.Revoke{Lease: 1})
	view := w.flushed()
	defer view.Close()
	past, err := record.History(view, "n")
	if err != nil || len(past) != 2 || past[1].Why != ownership.WhyRevoked {
		t.Errorf("history: %+v, %v", past, err)
	}
}

// Records that no member ever wrote are refused.
func TestDamagedNameRecordsAreRefused(t *testing.T) {
	for what, damage := range map[string]func(w *world) error{
		"another holder": func(w *world) error {
			m := new(logpb.Name)
			if _, err := record.Load(w.db, record.NameKey("n"), m); err != nil {
				return err
			}
			m.Current.Lease++
			return writeRecord(w, record.NameKey("n"), m)
		},
		"a holder without a key": func(w *world) error {
			return writeRecord(w, record.NameKey("m"), &logpb.Name{Name: []byte("m"), Current: &logpb.Tenure{Token: 2, Lease: 1}})
		},
		"another name": func(w *world) error {
			return writeRecord(w, record.NameKey("o"), &logpb.Name{Name: []byte("p")})
		},
		"a claim without a key": func(w *world) error {
			m := new(logpb.Lease)
			if _, err := record.Load(w.db, record.LeaseKey(2), m); err != nil {
				return err
			}
			m.Claimed = true
			return writeRecord(w, record.LeaseKey(2), m)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t).serve()
			w.do(1, ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour})
			w.do(2, entry.Grant{Lease: 2, TTL: time.Hour})
			w.flush()
			if err := damage(w); err != nil {
				t.Fatal(err)
			}
			err := w.reopened()
			defer w.close()
			if damaged := (*record.DamagedError)(nil); !errors.As(err, &damaged) {
				t.Errorf("opened with %v", err)
			}
		})
	}
}

func writeRecord(w *world, key []byte, m proto.Message) error {
	batch := w.db.NewBatch()
	record.Put(batch, key, m)
	return batch.Commit(pebble.Sync)
}

// A key that is older than the last token of a name never owns it, although etcd's recipe would say so.
func TestOldKeysNeverOwn(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Hour})
	w.do(2, putKey("n/7")) // no claim has it yet
	w.do(3, ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour})
	w.do(4, keyspace.PutRequest{Key: []byte("n/7"), Lease: 7})
	owner := func(id uint64) lessor.ID {
		t.Helper()
		return w.replyTo(id, w.step(Inspection{ID: id, Query: NamesQuery{Names: []string{"n"}}})).Result.(NameStates).Names[0].Lease
	}
	if got := owner(5); got != 1 {
		t.Fatalf("held by %d", got)
	}
	w.do(6, ownership.Release{Name: "n", Lease: 1})
	for round := uint64(0); round < 2; round++ {
		if got := owner(10 + round); got != lessor.NoLease {
			t.Errorf("held by %d", got)
		}
		if place := w.replyTo(20+round, w.step(Inspection{ID: 20 + round, Query: PlaceQuery{Name: "n", Lease: 7}})); !errors.Is(place.Err, ownership.ErrLost) {
			t.Errorf("place: %+v", place)
		}
		if err := w.reopened(); err != nil {
			t.Fatal(err)
		}
		w.serve()
	}
	w.do(7, ownership.Claim{Lease: 2, Name: "n", TTL: time.Hour})
	if got := owner(8); got != 2 {
		t.Errorf("held by %d", got)
	}
}

// A lease of a claim can be attached to keys in other queues, by etcd's recipe. It owns only the queue of its claim,
// after a restart as well.
func TestClaimOwnsOnlyItsOwnQueue(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour})
	w.do(2, keyspace.PutRequest{Key: []byte("a/1"), Lease: 1})
	w.do(3, keyspace.PutRequest{Key: []byte("z/1"), Lease: 1})
	before := w.dump()
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	if after := w.dump(); after != before {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", after, before)
	}
	w.do(4, keyspace.DeleteRequest{Key: []byte("z/1")})
	if got := w.do(5, ownership.Release{Name: "n", Lease: 1}); got.Result != (ownership.Released{Ended: true}) || got.Err != nil {
		t.Errorf("released: %+v", got)
	}
}

// Two keys of a queue that are created at one revision, by a txn of etcd's API, would be two tenures with one token.
// Only one of them ever owns the name.
func TestOnlyOneKeyOfARevisionOwnsTheName(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	for id := range uint64(5) {
		w.do(1+id, entry.Grant{Lease: lessor.ID(id + 1), TTL: time.Hour})
	}
	put := func(key string, lease int64) keyspace.PutRequest {
		return keyspace.PutRequest{Key: []byte(key), Lease: lease}
	}
	w.do(10, keyspace.TxnRequest{Success: []keyspace.TxnOp{put("n/3", 3), put("n/2", 2), put("n/1", 0)}})
	w.do(11, keyspace.TxnRequest{Success: []keyspace.TxnOp{put("n/5", 5), put("n/4", 4)}})
	w.do(12, put("n/1", 1)) // as old as the owner's, and would come before it in the queue
	owner := func(id uint64, want lessor.ID) {
		t.Helper()
		before := w.dump()
		if err := w.reopened(); err != nil {
			t.Fatal(err)
		}
		w.serve()
		if after := w.dump(); after != before {
			t.Errorf("after a restart:\n%s\nbefore:\n%s", after, before)
		}
		got := w.replyTo(id, w.step(Inspection{ID: id, Query: NamesQuery{Names: []string{"n"}}})).Result.(NameStates).Names[0]
		if got.Lease != want {
			t.Errorf("held by %d under token %d, want %d", got.Lease, got.Token, want)
		}
	}
	owner(20, 2)
	w.do(21, entry.Revoke{Lease: 2})
	owner(22, 4)
	w.do(23, entry.Revoke{Lease: 4})
	owner(24, lessor.NoLease)
}

// freeNames is of how many free names package ownership remembers anything.
const freeNames = 1 << 14

// putFreeNames writes the records of that many names that became free at a revision. A restart reads them.
func (w *world) putFreeNames(revision int64) {
	w.t.Helper()
	batch := w.db.NewBatch()
	for i := range freeNames {
		name := fmt.Sprintf("free/%05d", i)
		record.Put(batch, record.NameKey(name), &logpb.Name{Name: []byte(name), Ended: 1, Last: 1, Freed: revision, FreedOrder: uint32(i)})
		record.Put(batch, record.PastKey(name, 0), &logpb.Tenure{Token: 1, Why: uint32(ownership.WhyReleased)})
	}
	if err := batch.Commit(pebble.Sync); err != nil {
		w.t.Fatal(err)
	}
}

// A bounded number of free names is remembered, and the same ones after a restart.
func TestOldestFreeNamesAreForgotten(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.putFreeNames(1) // as if that many had been free before
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	w.do(1, ownership.Claim{Lease: 1, Name: "free/00001", TTL: time.Hour}) // which is free no more
	w.do(2, ownership.Claim{Lease: 2, Name: "n", TTL: time.Hour})
	w.do(3, ownership.Release{Name: "n", Lease: 2})
	w.do(4, ownership.Claim{Lease: 3, Name: "m", TTL: time.Hour})
	w.do(5, ownership.Release{Name: "m", Lease: 3})
	if n := len(w.replica.names.FreeNames()); n != freeNames {
		t.Errorf("%d free names are remembered", n)
	}
	view := w.flushed()
	if past, err := record.History(view, "free/00000"); err != nil || len(past) > 0 {
		t.Errorf("the one that was free longest: %v, %v", past, err)
	}
	if past, err := record.History(view, "free/00002"); err != nil || len(past) != 1 {
		t.Errorf("the next: %v, %v", past, err)
	}
	view.Close()
	before := w.dump()
	if err := w.reopened(); err != nil {
		t.Fatal(err)
	}
	w.serve()
	if after := w.dump(); after != before {
		t.Errorf("a restart changes what is remembered: %d lines, %d before", strings.Count(after, "\n"), strings.Count(before, "\n"))
	}
}

// What was forgotten of a name lets no older key own it.
func TestOldKeysNeverOwnForgottenNames(t *testing.T) {
	w := newWorld(t).serve()
	defer func() { w.close() }()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Hour})
	w.do(2, putKey("n/7")) // no claim has it yet
	w.do(3, ownership.Claim{Lease: 1, Name: "n", TTL: time.Hour})
	w.do(4, ownership.Claim{Lease: 2, Name: "m", TTL: time.Hour})
	w.putFreeNames(1 << 30) // as if that many had become free later
	restart := func() {
		t.Helper()
		if err := w.reopened(); err != nil {
			t.Fatal(err)
		}
		w.serve()
	}
	restart()
	w.do(5, ownership.Release{Name: "n", Lease: 1})
	if _, _, known := w.replica.names.Waiters("n"); known {
		t.Fatal("the name is still known")
	}
	restart()
	w.do(6, keyspace.PutRequest{Key: []byte("n/7"), Lease: 7})
	for round := range uint64(2) {
		got := w.replyTo(10+round, w.step(Inspection{ID: 10 + round, Query: NamesQuery{Names: []string{"n", "m"}}})).Result.(NameStates).Names
		if got[0].Held || got[1].Lease != 2 {
			t.Errorf("%s; %s", showState(got[0]), showState(got[1]))
		}
		restart()
	}
	w.do(8, entry.Revoke{Lease: 7})
	if _, _, known := w.replica.names.Waiters("n"); known {
		t.Error("what stands for nothing is remembered")
	}
}
