package replica

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func putKey(key string) keyspace.PutRequest {
	return keyspace.PutRequest{Key: []byte(key), Value: []byte("v")}
}

// The queue has an end, and a caller that is turned away knows that nothing happened.
func TestRequestsBeyondTheQueueAreRefused(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	var events []Event
	for id := uint64(1); id <= intake.MaxQueue+3; id++ { // nothing is proposed before the member serves
		events = append(events, Request{ID: id, Command: keyspace.DeleteRequest{Key: []byte(fmt.Sprint(id))}}, Read{ID: id + 1e6})
	}
	refused := 0
	for _, e := range w.step(events...) {
		if reply, ok := e.(Reply); ok {
			if !errors.Is(reply.Err, ErrTooManyRequests) {
				t.Fatalf("reply %+v", reply)
			}
			refused++
		}
	}
	if refused != 6 {
		t.Errorf("%d requests and reads refused, want 3 of each", refused)
	}
	w.settle()
	if got := w.replica.Counts().Applied; got != intake.MaxQueue {
		t.Errorf("%d commands applied, want those that were taken on: %d", got, intake.MaxQueue)
	}
}

// The log does not grow for ever, and the rest of it is enough to start from.
func TestLogIsTruncated(t *testing.T) {
	w := newWorld(t)
	w.logKeep = 10
	w.close()
	w.start()
	w.serve()
	for id := uint64(1); id <= 100; id++ {
		w.do(id, putKey("k"))
	}
	if kept := w.replica.log.Last() - w.replica.log.Truncated().Index; kept > 21 {
		t.Errorf("%d entries are kept, want at most twice 10", kept)
	}
	entries := 0
	it, err := w.db.NewIter(record.Family(record.FamilyLog))
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		entries++
	}
	if err := it.Close(); err != nil || entries > 21 {
		t.Errorf("%d entries on the disk, %v", entries, err)
	}
	want := w.dump()
	again := w.crashed(nil)
	w.close()
	again.start()
	defer again.close()
	if got := again.serve().dump(); got != want {
		t.Errorf("after a restart:\n%s\nbefore:\n%s", got, want)
	}
}

// A start from a log that was never truncated applies all of it again if needed, in bounded steps.
func TestLongLogIsAppliedInBoundedSteps(t *testing.T) {
	w := newWorld(t)
	w.serve()
	big := strings.Repeat("x", 64<<10)
	for id := uint64(1); id <= 100; id++ { // more than one bite, and more than the tail in memory
		w.do(id, keyspace.PutRequest{Key: fmt.Append(nil, id%7), Value: []byte(big)})
	}
	want := w.dump()
	batch := w.db.NewBatch() // forget the state, but not the log
	for _, f := range []byte{'v', 'h', 'e', 'm', record.FamilyLease, record.FamilyLeadership} {
		if err := batch.DeleteRange([]byte{f}, []byte{f + 1}, nil); err != nil {
			t.Fatal(err)
		}
	}
	record.Remove(batch, record.KeyApplied)
	if err := batch.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	again := w.crashed(nil)
	w.close()
	again.start()
	defer again.close()
	if got := again.serve().dump(); got != want {
		t.Errorf("rebuilt from the log:\n%.300s\nbefore:\n%.300s", got, want)
	}
}

// A database that is not consistent is refused with an explanation, and never repaired by a guess.
func TestDamagedDatabaseIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(*pebble.Batch)
		want   string
	}{
		{"a hole in the log", func(b *pebble.Batch) { record.Remove(b, record.LogKey(3)) }, "the log continues with entry 4 after entry 2"},
		{"the end of the log is gone", func(b *pebble.Batch) { record.Remove(b, record.LogKey(5)) }, "but the state is at 5"},
		{"an entry is somewhere else", func(b *pebble.Batch) { b.Set(record.LogKey(5), []byte{0x18, 7}, nil) }, "log entry 5 calls itself 7"},
		{"an entry is not one", func(b *pebble.Batch) { b.Set(record.LogKey(5), []byte{0xff}, nil) }, "log entry 5 cannot be read"},
		{"a key of the log is too long", func(b *pebble.Batch) { b.Set(append(record.LogKey(5), 0), nil, nil) }, "has a wrong length"},
		{"a lease is not one", func(b *pebble.Batch) { b.Set(record.LeaseKey(1), []byte{0xff}, nil) }, "cannot be read"},
		{"a lease makes no sense", func(b *pebble.Batch) { record.Put(b, record.LeaseKey(1), &logpb.Lease{Id: 1, TtlNs: -1}) }, "the record of lease 1 makes no sense"},
		{"a leadership makes no sense", func(b *pebble.Batch) { record.Put(b, record.LeadershipKey(2), &logpb.Leadership{Start: 1 << 50}) }, "is not where its key says"},
		{"a key of a lease that is not there", func(b *pebble.Batch) { record.Remove(b, record.LeaseKey(1)) }, `key "a" is attached to lease 1`},
		{"nobody's", func(b *pebble.Batch) { record.Remove(b, record.KeyIdentity) }, "does not say whose it is"},
		{"a newer format", func(b *pebble.Batch) { b.Set(record.KeyIdentity, []byte{8, 9}, nil) }, "use the version of leasekeeper that wrote it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.serve()
			w.do(1, entry.Grant{Lease: 1, TTL: time.Hour})
			w.do(2, keyspace.PutRequest{Key: []byte("a"), Lease: 1})
			w.do(3, putKey("b"))
			w.do(4, putKey("c"))
			batch := w.db.NewBatch()
			c.damage(batch)
			if err := batch.Commit(pebble.Sync); err != nil {
				t.Fatal(err)
			}
			w.close()
			err := w.tryOpen()
			w.close()
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A committed entry that this program never wrote stops the member instead of being skipped.
func TestUnknownEntryHaltsTheMember(t *testing.T) {
	command := []byte{0x12, 0x02, 0x22, 0x00} // a revocation
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"unknown command", "unknown command", []byte{0x12, 0x00}},
		{"no entry", "its commands cannot be read", []byte{0xff}},
		{"too many commands", "more than any member writes", bytes.Repeat(command, maxOrdinal+1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.serve()
			defer w.close()
			if err := w.replica.raft.Propose(c.data); err != nil {
				t.Fatal(err)
			}
			w.step(Tick{})
			var halt *Halt
			for _, e := range w.replica.Step(w.clock.Now(), Persisted{Sequence: w.writes[0].Sequence}) {
				if h, ok := e.(Halt); ok {
					halt = &h
				}
			}
			if halt == nil || !strings.Contains(halt.Err.Error(), c.want) {
				t.Fatalf("the member goes on: %v", halt)
			}
			if effects := w.replica.Step(w.clock.Now(), Read{ID: 7}); len(effects) > 0 {
				t.Errorf("a halted member still acts: %v", effects)
			}
		})
	}
}

// T3 and T5 (docs/design/time-and-identity.md): a renewal that came before the end was decided is honoured, however
// late it is.
func TestOverdueLeaseIsRenewedBeforeItsEndIsDecided(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	w.do(1, entry.Grant{Lease: 1, TTL: time.Second})
	w.clock.Advance(time.Second + time.Nanosecond)
	w.step(Renewal{ID: 2, Leases: []lessor.ID{1}})
	w.settle()
	w.advance(900 * time.Millisecond)
	if w.replica.Lessor().Len() != 1 {
		t.Error("a lease ended that was renewed before its end was decided")
	}
	w.advance(200 * time.Millisecond)
	if w.replica.Lessor().Len() != 0 {
		t.Error("a lease did not end")
	}
}

// C2 (docs/design/time-and-identity.md): the leader counts the TTL exactly. The lease ends not before, and at the
// first look after.
func TestLeaseEndsExactlyAtItsTTL(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	w.do(1, entry.Grant{Lease: 1, TTL: 700 * time.Millisecond})
	granted := w.clock.Now()
	for w.replica.Lessor().Len() > 0 {
		w.clock.Advance(w.wait())
		w.step(Tick{})
		w.settle()
	}
	if lived := w.clock.Now().Elapsed(granted); lived <= 700*time.Millisecond || lived > 701*time.Millisecond {
		t.Errorf("a lease of 700ms lived for %v", lived)
	}
}

// However many leases end together, one entry ends a bounded number of them, so that others get their turn.
func TestExpiriesShareEntriesWithinBounds(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.serve()
	const leases = 3 * intake.MaxEntryWeight
	var events []Event
	for id := 1; id <= leases; id++ {
		events = append(events, Request{ID: uint64(id), Command: entry.Grant{Lease: lessor.ID(id), TTL: time.Second}})
	}
	w.step(events...)
	w.settle()
	before := w.replica.Applied()
	w.advance(2 * time.Second)
	if left := w.replica.Lessor().Len(); left > 0 {
		t.Fatalf("%d leases are left", left)
	}
	// Each lease is checkpointed once, with many others, and ended once.
	if entries := w.replica.Applied() - before; entries < leases/(2*intake.MaxExpiries) || entries > leases/intake.MaxExpiries+20 {
		t.Errorf("%d leases were checkpointed and ended by %d entries", leases, entries)
	}
}
