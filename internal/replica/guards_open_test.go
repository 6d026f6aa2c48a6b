package replica

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// opensInSpiteOf opens the state of a disk while the read with that number fails. It returns false if there are not that
// many reads.
func opensInSpiteOf(t *testing.T, state *world, n int) bool {
	t.Helper()
	u := &unreadable{left: -1}
	w := state.crashed(nil)
	w.database = func(o *pebble.Options) {
		o.FS, o.CacheSize, o.DisableAutomaticCompactions, o.DisableTableStats = u.wrap(o.FS), 1, true, true
	}
	w.configure = func(*Config) { u.left = n } // the database is open by then
	err := w.tryOpen()
	u.left = -1
	defer w.close()
	if !u.fired {
		if err != nil {
			t.Fatalf("nothing fails, and it does not open: %v", err)
		}
		return false
	}
	if !errors.Is(err, errUnreadable) {
		t.Errorf("read %d failed, and opening returns %v", n, err)
	}
	return true
}

// A member that cannot read all of its data does not start with a part of it, whichever read fails.
func TestReadErrorWhileOpeningIsReturned(t *testing.T) {
	state := onDisk(t)
	failed := 0
	for n := 0; opensInSpiteOf(t, state, n); n++ {
		if n > 2000 {
			t.Fatal("it reads without end")
		}
		failed++
	}
	if failed < 5 {
		t.Errorf("%d reads failed: the rest was in memory", failed)
	}
}

// A member that cannot read what it is to remove of the history halts, and answers no compaction that waits for that.
func TestReadErrorWhileTrimmingIsNeverAnswered(t *testing.T) {
	first := newWorld(t).serve()
	for i := range uint64(20) {
		first.do(i+1, keyspace.PutRequest{Key: []byte{'k', byte(i % 4)}, Value: []byte("v")})
	}
	revision := first.replica.Store().Revision()
	state := first.crashed(nil)
	first.close()
	failed := 0
	for n := 0; n < 200; n++ {
		u := &unreadable{left: -1}
		w := state.crashed(nil)
		w.mayHalt = true
		w.database = func(o *pebble.Options) {
			o.FS, o.CacheSize, o.DisableAutomaticCompactions, o.DisableTableStats = u.wrap(o.FS), 1, true, true
		}
		w.start()
		w.serve()
		u.left = n
		effects := append(w.step(Request{ID: 99, Command: entry.Compact{Revision: revision, Physical: true}}), w.settleOrHalt()...)
		for i := 0; i < 100 && w.halted == nil && w.wait() == 0; i++ {
			effects = append(effects, w.step(Tick{})...)
		}
		u.left = -1
		if u.fired {
			failed++
			if !errors.Is(w.halted, errUnreadable) {
				t.Errorf("read %d failed, and the member goes on: %v", n, w.halted)
			}
			if hasReply(effects, 99) {
				t.Errorf("read %d failed, and the compaction is answered", n)
			}
		}
		w.close()
		if !u.fired {
			break
		}
	}
	if failed == 0 {
		t.Error("no read failed: everything was in memory")
	}
}

// What a name had in the past is reported whole or not at all, and a time that is not known is none.
func TestMissingTenureInTheHistoryIsDamage(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, claimOf(7, "n", false))
	w.do(2, ownership.Release{Name: "n", Lease: 7})
	w.do(3, claimOf(8, "n", false))
	if err := w.replica.Flush(); err != nil {
		t.Fatal(err)
	}
	all, err := record.History(w.db, "n")
	if err != nil || len(all) != 2 || all[0].Lease != 8 || all[1].Lease != 7 || !all[0].To.IsZero() {
		t.Fatalf("%+v, %v", all, err)
	}
	batch := w.db.NewBatch()
	record.Remove(batch, record.PastKey("n", 0))
	if err := batch.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if all, err := record.History(w.db, "n"); !isDamage(err) {
		t.Errorf("with a hole: %+v, %v", all, err)
	}
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*record.DamagedError](err)
	return ok
}
