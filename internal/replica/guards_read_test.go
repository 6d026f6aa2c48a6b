package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

var errUnreadable = errors.New("a block that cannot be read")

// unreadable has one read of a table fail: the first after left has counted down to zero. The test's goroutine owns it:
// the database's own goroutines remove files alongside, and read no table while nothing is compacted.
type unreadable struct {
	left  int // reads that succeed before that; nothing fails while it is negative
	fired bool
}

func (u *unreadable) wrap(files vfs.FS) vfs.FS {
	return errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileReadAt || !strings.HasSuffix(op.Path, ".sst") || u.left < 0 {
			return nil
		}
		if u.left--; u.left >= 0 {
			return nil
		}
		u.fired = true
		return errUnreadable
	}))
}

// onDisk returns a world with names, leases and keys in tables. Nothing is cached, and nothing reads but the replica.
func onDisk(t *testing.T) *world {
	w := newWorld(t).serve()
	defer w.close()
	for i, op := range []entry.Command{
		claimOf(7, "n", false), claimOf(8, "n", true), claimOf(9, "pinned", false), ownership.Pin{Name: "pinned", Reason: "why"},
		claimOf(10, "alone", false), entry.Grant{Lease: 11, TTL: time.Minute}, keyspace.PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: 11},
		claimOf(12, "freed", false), ownership.Release{Name: "freed", Lease: 12}, keyspace.PutRequest{Key: ownership.Key("odd", 13), Value: []byte("v")},
	} {
		if r := w.do(uint64(i+1), op); r.Err != nil {
			t.Fatalf("%T: %v", op, r.Err)
		}
	}
	// What is only logged comes into memory when the member starts, and no read of it could fail.
	if err := errors.Join(w.replica.Flush(), w.db.Flush()); err != nil {
		t.Fatal(err)
	}
	return w.crashed(nil)
}

// A member that cannot read what it needs to apply a command halts, wherever the read is. An answer would show a state
// that the other members do not have.
func TestReadErrorWhileApplyingIsNeverAnswered(t *testing.T) {
	state, failed := onDisk(t), 0
	for _, op := range []entry.Command{
		claimOf(20, "n", false), claimOf(20, "n", true), claimOf(20, "new", false), claimOf(20, "freed", false), claimOf(13, "odd", false),
		claimOf(7, "n", false), claimOf(8, "n", true), ownership.Release{Name: "n", Lease: 7}, ownership.Release{Name: "n", Lease: 8}, ownership.Release{Name: "alone", Lease: 10}, ownership.Transfer{Name: "n", Lease: 7},
		ownership.Claim{Lease: 20, Name: "n", TTL: time.Minute, Wait: true, Priority: 1}, ownership.Prefer{Name: "n", Lease: 8},
		ownership.Finish{Name: "n", Lease: 7, Tick: "1"}, ownership.Finish{Name: "n", Lease: 7, Hold: time.Minute}, ownership.Finish{Name: "freed", Lease: 99, Token: 9, Tick: "1"},
		ownership.RaiseMark{Name: "n", Lease: 7, Tick: "1"},
		ownership.Pin{Name: "alone", Reason: "why"}, ownership.Unpin{Name: "pinned"}, entry.Revoke{Lease: 11}, entry.Revoke{Lease: 7}, entry.Grant{Lease: 21, TTL: time.Minute},
		ownership.Revoke{Name: "n", Now: true}, ownership.Revoke{Name: "n"},
		keyspace.PutRequest{Key: []byte("k"), Value: []byte("w"), PrevKV: true}, keyspace.DeleteRequest{Key: []byte("k"), PrevKV: true},
		keyspace.DeleteRequest{Key: ownership.Key("n", 7)}, keyspace.PutRequest{Key: ownership.Key("n", 7), Value: []byte("free")},
		keyspace.PutRequest{Key: ownership.Key("n", 7), Value: []byte("card"), Lease: 7},
	} {
		t.Run(fmt.Sprintf("%T%+v", op, op), func(t *testing.T) {
			for n := 0; ; n++ {
				if n > 200 {
					t.Fatal("it reads without end")
				}
				if !readErrorIsReportedAt(t, state, op, n) {
					return
				}
				failed++
			}
		})
	}
	if failed == 0 {
		t.Error("no read failed: everything was in memory")
	}
}

// readErrorIsReportedAt makes the read with that number fail while op is answered and applied. It returns false if there are
// fewer reads.
func readErrorIsReportedAt(t *testing.T, state *world, op entry.Command, n int) bool {
	t.Helper()
	u := &unreadable{left: -1}
	w := state.crashed(nil)
	w.mayHalt = true
	w.database = func(o *pebble.Options) {
		o.FS, o.CacheSize, o.DisableAutomaticCompactions, o.DisableTableStats = u.wrap(o.FS), 1, true, true
	}
	w.start()
	defer w.close()
	w.serve()
	u.left = n
	effects, left := w.answer([]Event{Request{ID: 99, Command: op}})
	for _, e := range effects {
		w.perform(e)
	}
	if len(left) > 0 {
		effects = append(effects, w.step(left...)...)
		effects = append(effects, w.settleOrHalt()...)
	}
	u.left = -1
	if !u.fired {
		return false
	}
	for _, e := range effects {
		if r, ok := e.(Reply); ok && r.ID == 99 && r.Err == nil {
			t.Errorf("read %d failed, and the answer is %+v", n, r.Result)
		}
	}
	if !errors.Is(w.halted, errUnreadable) {
		t.Errorf("read %d failed, and the member goes on: %v", n, w.halted)
	}
	return true
}

// So does one that cannot read what the end of a lease changes.
func TestReadErrorWhileALeaseEndsHalts(t *testing.T) {
	state, failed := onDisk(t), 0
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
		for range 40 {
			for _, d := range []time.Duration{10 * time.Second, 2 * TickInterval} { // a pause holds decisions back
				w.clock.Advance(d)
				w.step(Tick{})
				w.settleOrHalt()
			}
		}
		u.left = -1
		if u.fired {
			if failed++; !errors.Is(w.halted, errUnreadable) {
				t.Errorf("read %d failed, and the member goes on: %v", n, w.halted)
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

// settleOrHalt settles until the replica has halted.
func (w *world) settleOrHalt() (all []Effect) {
	for i := 0; w.halted == nil && len(w.writes)+len(w.replica.deferred) > 0; i++ {
		if i > 1000 {
			w.t.Fatal("the replica never rests")
		}
		if len(w.writes) > 0 {
			all = append(all, w.report()...)
		} else {
			all = append(all, w.step(Tick{})...)
		}
	}
	return all
}
