package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// heldOffWorld returns a world that was closed with a lease of ten seconds on a key and on a name, and whose database
// holds it off for a minute.
func heldOffWorld(t *testing.T) *world {
	w := newWorld(t).serve()
	w.do(1, entry.Grant{Lease: 1, TTL: 10 * time.Second})
	w.do(2, keyspace.PutRequest{Key: []byte("attached"), Lease: 1})
	w.do(3, putKey("plain"))
	w.do(4, ownership.Claim{Name: "n", Lease: 2, TTL: 10 * time.Second})
	w.tidy()
	batch := w.db.NewBatch()
	record.Put(batch, record.KeyHoldOff, &logpb.HoldOff{DurationNs: int64(time.Minute)})
	if err := batch.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	return w
}

// restarted is the world after its member has started again.
func (w *world) restarted() *world {
	w.t.Helper()
	w.tidy()
	w.close()
	w.start()
	return w.serve()
}

func (w *world) mustHoldOff(id uint64, held bool) {
	w.t.Helper()
	got := w.do(id, ownership.Claim{Name: "other", Lease: lessor.ID(id), TTL: time.Hour})
	if errors.Is(got.Err, ErrHeldOff) != held || w.replica.HoldOff() > 0 != held {
		w.t.Errorf("held off for %v, and a claim: %v; want it held off: %t", w.replica.HoldOff(), got.Err, held)
	}
}

// During a hold-off no command begins or ends a lease, or detaches a key from one. Others are carried out.
func TestHoldOffRefusesWhatCouldGrantAName(t *testing.T) {
	w := heldOffWorld(t).restarted()
	defer w.close()
	attach := keyspace.PutRequest{Key: []byte("k"), Lease: 1}
	for i, op := range []entry.Command{
		entry.Grant{Lease: 9, TTL: time.Hour}, entry.Revoke{Lease: 1}, attach, putKey("attached"),
		keyspace.DeleteRequest{Key: []byte("attached")}, keyspace.DeleteRequest{Key: []byte("p"), End: []byte("q")},
		keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.TxnRequest{Failure: []keyspace.TxnOp{attach}}}},
		keyspace.TxnRequest{Failure: []keyspace.TxnOp{keyspace.DeleteRequest{Key: []byte("attached")}}},
		ownership.Claim{Name: "n", Lease: 2, TTL: 10 * time.Second}, ownership.Claim{Name: "n", Lease: 7, TTL: time.Hour, Wait: true},
		ownership.Release{Name: "n", Lease: 2}, ownership.Finish{Name: "n", Lease: 2}, ownership.Revoke{Name: "n", Now: true},
		ownership.Transfer{Name: "n", Lease: 2}, ownership.Prefer{Name: "n", Lease: 2},
	} {
		if got := w.do(uint64(10+i), op); !errors.Is(got.Err, ErrHeldOff) {
			t.Errorf("%#v: %v", op, got.Err)
		}
	}
	for i, op := range []entry.Command{
		putKey("plain"), keyspace.DeleteRequest{Key: []byte("plain")}, ownership.Pin{Name: "n"}, ownership.Unpin{Name: "n"},
		keyspace.TxnRequest{Success: []keyspace.TxnOp{keyspace.RangeRequest{Key: []byte("attached")}, putKey("plain")}},
	} {
		if got := w.do(uint64(40+i), op); got.Err != nil {
			t.Errorf("%#v: %v", op, got.Err)
		}
	}
	for _, e := range w.step(Renewal{ID: 50, Leases: []lessor.ID{1}}) {
		if r, ok := e.(Renewed); ok && r.Leases[0].Err != nil {
			t.Errorf("a renewal: %v", r.Leases[0].Err)
		}
	}
}

// A lease whose deadline passes during the hold-off ends after it, and not before.
func TestLeasesEndAfterHoldOff(t *testing.T) {
	w := heldOffWorld(t).restarted()
	defer w.close()
	w.advance(59 * time.Second)
	if n := w.replica.Lessor().Len(); n != 2 {
		t.Fatalf("%d leases are left before the hold-off is over", n)
	}
	w.advance(2 * time.Second)
	w.advance(time.Second)
	if n := w.replica.Lessor().Len(); n != 0 {
		t.Errorf("%d leases are left after the hold-off", n)
	}
	w.mustHoldOff(60, false)
}

// A restart neither shortens a hold-off nor prolongs it. On other clocks it begins again.
func TestHoldOffOutlastsRestarts(t *testing.T) {
	for _, otherClocks := range []bool{false, true} {
		w := heldOffWorld(t).restarted()
		w.mustHoldOff(60, true)
		w.advance(40 * time.Second)
		if otherClocks {
			w.domain = "other"
		}
		w.restarted()
		w.advance(19 * time.Second)
		w.mustHoldOff(61, true)
		w.advance(2 * time.Second)
		w.mustHoldOff(62, otherClocks)
		if otherClocks {
			w.advance(40 * time.Second)
			w.mustHoldOff(63, false)
		}
		// What is over does not come again.
		w.domain = "another"
		w.restarted()
		w.mustHoldOff(64, false)
		w.close()
	}
}
