package record

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// commitTo writes into a database.
func commitTo(t *testing.T, db *pebble.DB, write func(b *pebble.Batch)) {
	t.Helper()
	batch := db.NewBatch()
	write(batch)
	if err := batch.Commit(pebble.NoSync); err != nil {
		t.Fatal(err)
	}
}

// garble writes bytes that are no record.
func garble(t *testing.T, b *pebble.Batch, key []byte) {
	t.Helper()
	if err := b.Set(key, []byte{0xff}, nil); err != nil {
		t.Fatal(err)
	}
}

// A record of a lease that no member ever wrote is refused when a member starts.
func TestSenselessLeasesAreRefused(t *testing.T) {
	i := &Instants{sequence: 1}
	sound := lessor.Record{ID: 7, Generation: 3, Cleared: 4, TTL: time.Minute, Checkpointed: true, Remaining: time.Second}
	read := func(l lessor.Record) error {
		m := new(logpb.Lease)
		i.SetLease(m, &l)
		_, err := i.LeaseOf(m)
		return err
	}
	if err := read(sound); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*lessor.Record){
		"no id":                 func(r *lessor.Record) { r.ID = lessor.NoLease },
		"no generation":         func(r *lessor.Record) { r.Generation = 0 },
		"cleared before it was": func(r *lessor.Record) { r.Cleared = 2 },
		"no TTL":                func(r *lessor.Record) { r.TTL, r.Remaining = 0, 0 },
		"a TTL too long":        func(r *lessor.Record) { r.TTL = lessor.MaxTTL + 1 },
		"less than no time":     func(r *lessor.Record) { r.Remaining = -1 },
		"more left than a TTL":  func(r *lessor.Record) { r.Remaining = time.Minute + 1 },
	} {
		r := sound
		if change(&r); !isDamage(read(r)) {
			t.Errorf("a lease with %s is believed", what)
		}
	}
}

// Instants on the disk count only for the clocks that they were read on: those of the same domain that show no less.
func TestInstantsOfOtherClocksBeginAgain(t *testing.T) {
	db := openDatabase(t)
	now := clock.Instant{Raw: 5, Boot: 5}
	first, err := OpenInstants(db, "test", now)
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		domain clock.Domain
		now    clock.Instant
		same   bool
	}{
		"the same clocks":     {"test", clock.Instant{Raw: 6, Boot: 6}, true},
		"other clocks":        {"other", clock.Instant{Raw: 6, Boot: 6}, false},
		"clocks of no name":   {clock.UnknownDomain, clock.Instant{Raw: 6, Boot: 6}, false},
		"clocks that go back": {"test", clock.Instant{Raw: 6, Boot: 4}, false},
	} {
		commitTo(t, db, func(b *pebble.Batch) {
			origin, _ := first.Encode(now)
			Put(b, KeyDomain, &logpb.Domain{Sequence: first.sequence, Name: "test", Origin: origin})
		})
		got, err := OpenInstants(db, c.domain, c.now)
		if err != nil || (got.Domain() == first.Domain()) != c.same || (got.origin == now) != c.same {
			t.Errorf("with %s: %+v, %v", what, got, err)
		}
	}
}

// One instant that lies ahead is enough to show that the clocks are others.
func TestOneInstantAheadIsEnough(t *testing.T) {
	i := Instants{sequence: 1, now: clock.Instant{Raw: 10, Boot: 10}}
	i.Decode(&logpb.Instant{RawNs: 11, BootNs: 9}, 1)
	i.Decode(&logpb.Instant{RawNs: 1, BootNs: 1}, 1)
	if !i.Ahead() {
		t.Error("an instant in the past hides one in the future")
	}
}

// Only sound data of this program's format is restored from.
func TestOnlySoundSnapshotsAreRestored(t *testing.T) {
	for what, spoil := range map[string]func(b *pebble.Batch){
		"nothing wrong": func(*pebble.Batch) {},
		"another format": func(b *pebble.Batch) {
			Put(b, KeyIdentity, &logpb.Identity{Format: Format + 1, ClusterId: 1, MemberId: 2})
		},
		"no identity":                      func(b *pebble.Batch) { Remove(b, KeyIdentity) },
		"an identity that cannot be read":  func(b *pebble.Batch) { garble(t, b, KeyIdentity) },
		"a hard state that cannot be read": func(b *pebble.Batch) { garble(t, b, KeyHardState) },
		"an applied entry that is unknown": func(b *pebble.Batch) { garble(t, b, KeyApplied) },
		"a lease that cannot be read":      func(b *pebble.Batch) { garble(t, b, LeaseKey(1)) },
		"an entry that cannot be read":     func(b *pebble.Batch) { Put(b, KeyApplied, &logpb.Applied{Index: 1, Term: 1}); garble(t, b, LogKey(2)) },
		"a buffer that cannot be read":     func(b *pebble.Batch) { garble(t, b, numbered(FamilyBuffer, 1)) },
		"a domain that cannot be read":     func(b *pebble.Batch) { garble(t, b, KeyDomain) },
		"revisions that cannot be read": func(b *pebble.Batch) {
			for c := range byte(math.MaxUint8) {
				garble(t, b, []byte{keyspace.FamilyMeta, c})
			}
		},
	} {
		db := openDatabase(t)
		if _, err := Identify(db, NewMember{ClusterID: 1, MemberID: 2}); err != nil {
			t.Fatal(err)
		}
		commitTo(t, db, func(b *pebble.Batch) {
			Put(b, KeyHardState, new(raftpb.HardState))
			spoil(b)
		})
		if _, err := Refound(db, Refounding{ClusterID: 3, MemberID: 4, Incarnation: 5, Now: 1 << 30}); (err == nil) != (what == "nothing wrong") {
			t.Errorf("with %s: %v", what, err)
		}
	}
}

// A refounded database has new ids, no applied entries in its log, and leases without checkpoints. It keeps no record of
// former peers. Its hold-off is the largest TTL unless another is ordered.
func TestRefoundedDatabaseForgetsItsCluster(t *testing.T) {
	for _, ordered := range []time.Duration{-1, 0, time.Second} {
		db := openDatabase(t)
		if _, err := Identify(db, NewMember{ClusterID: 1, MemberID: 2, Incarnation: 9, Members: []uint64{2, 3}}); err != nil {
			t.Fatal(err)
		}
		commitTo(t, db, func(b *pebble.Batch) {
			Put(b, KeyHardState, &raftpb.HardState{Term: new(uint64(4)), Vote: new(uint64(3)), Commit: new(uint64(2))})
			Put(b, KeyApplied, &logpb.Applied{Index: 2, Term: 4})
			Put(b, KeyPeers, &logpb.Peers{Peers: []*logpb.Peer{{MemberId: 3, Incarnation: 7}}})
			for index := range uint64(3) {
				Put(b, LogKey(index+1), &raftpb.Entry{Index: new(index + 1), Term: new(uint64(4)), Type: raftpb.EntryConfChange.Enum()})
			}
			Put(b, LogKey(4), &raftpb.Entry{Index: new(uint64(4)), Term: new(uint64(4)), Data: []byte("a command")})
			for id, ttl := range map[lessor.ID]time.Duration{-5: time.Minute, 7: time.Hour} {
				Put(b, LeaseKey(id), &logpb.Lease{Id: int64(id), Generation: 1, Cleared: 1, TtlNs: int64(ttl), Checkpointed: &logpb.Checkpointed{RemainingNs: 1}})
			}
		})
		got, err := Refound(db, Refounding{ClusterID: 11, MemberID: 12, Incarnation: 13, Now: 1 << 30, HoldOff: ordered})
		if err != nil || got.Leases != 2 || got.Revision != 1<<50 {
			t.Fatalf("%+v, %v", got, err)
		}
		want := ordered
		if ordered < 0 {
			want = time.Hour
		}
		holdOff := new(logpb.HoldOff)
		if found, err := Load(db, KeyHoldOff, holdOff); err != nil || found != (want > 0) || holdOff.DurationNs != int64(want) || got.HoldOff != want {
			t.Errorf("held off for %v, with a record: %t, %v, %v; want %v", got.HoldOff, found, holdOff, err, want)
		}
		identity, conf, truncated := new(logpb.Identity), new(raftpb.ConfState), new(logpb.Applied)
		for key, m := range map[string]proto.Message{string(KeyIdentity): identity, string(KeyConfState): conf, string(KeyTruncated): truncated} {
			if found, err := Load(db, []byte(key), m); !found || err != nil {
				t.Fatalf("%q: %t, %v", key, found, err)
			}
		}
		if identity.ClusterId != 11 || identity.MemberId != 12 || identity.Incarnation != 13 || !slices.Equal(conf.Voters, []uint64{12}) || truncated.Index != 2 || truncated.Term != 4 {
			t.Errorf("%v, %v, the log begins after %v", identity, conf, truncated)
		}
		for key, want := range map[string]bool{string(KeyPeers): false, string(KeyPromised): false, string(KeyNew): false,
			string(LogKey(1)): false, string(LogKey(2)): false, string(LogKey(3)): true} {
			if _, closer, err := db.Get([]byte(key)); (err == nil) != want {
				t.Errorf("record %q: %v", key, err)
			} else if err == nil && closer.Close() != nil {
				t.Error("a record cannot be closed")
			}
		}
		for index, want := range map[uint64]string{3: "\x18\x01", 4: "a command"} { // a change of members becomes an entry without commands
			e := new(raftpb.Entry)
			if found, err := Load(db, LogKey(index), e); !found || err != nil || e.GetType() != raftpb.EntryNormal || string(e.Data) != want || e.GetTerm() != 4 || e.GetIndex() != index {
				t.Errorf("entry %d: %v, %v", index, e, err)
			}
		}
		err = Leases(db, func(m *logpb.Lease) bool {
			if m.Checkpointed != nil {
				t.Errorf("lease %d has %v left", m.Id, m.Checkpointed)
			}
			return true
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// The number of a new data directory is on the disk before the member can say that it is empty. After a power cut the member
// has the same number, so that the others do not take its directory for another one.
func TestIncarnationIsOnTheDiskFirst(t *testing.T) {
	fs := vfs.NewCrashableMem()
	for start, files := range []*vfs.MemFS{fs, nil} {
		if files == nil {
			files = fs.CrashClone(vfs.CrashCloneCfg{})
		}
		db, err := pebble.Open("db", &pebble.Options{FS: files})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		identity, err := Identify(db, NewMember{ClusterID: 1, MemberID: 2, Incarnation: uint64(start + 7), Members: []uint64{2, 3, 4}})
		if err != nil {
			t.Fatal(err)
		}
		if identity.Incarnation != 7 {
			t.Errorf("at start %d the number is %d", start, identity.Incarnation)
		}
	}
}
