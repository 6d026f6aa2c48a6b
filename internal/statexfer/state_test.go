package statexfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// bareMember is a database with the records of a member, and nothing else of a member.
type bareMember struct {
	fs vfs.FS
	db *pebble.DB
}

func openBare(t testing.TB, fs vfs.FS) bareMember {
	t.Helper()
	options := datadir.DatabaseOptions(fs, func(err error) { t.Errorf("the database halts: %v", err) })
	options.MemTableSize, options.CacheSize = 256<<10, 1<<20
	db, err := datadir.OpenDatabase("db", options)
	if err != nil {
		t.Fatal(err)
	}
	return bareMember{fs, db}
}

func (m bareMember) set(t testing.TB, sync *pebble.WriteOptions, records ...record.Record) {
	t.Helper()
	batch := m.db.NewBatch()
	for _, r := range records {
		if err := batch.Set(r.Key, r.Value, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Commit(sync); err != nil {
		t.Fatal(err)
	}
}

// records returns all records as text, in order.
func (m bareMember) records(t testing.TB) []string {
	t.Helper()
	it, err := m.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for it.First(); it.Valid(); it.Next() {
		all = append(all, fmt.Sprintf("%q=%x", it.Key(), it.Value()))
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		t.Fatal(err)
	}
	return all
}

func (m bareMember) stream(t testing.TB) []byte {
	t.Helper()
	var stream bytes.Buffer
	snapshot := m.db.NewSnapshot()
	if err := errors.Join(Write(&stream, snapshot), snapshot.Close()); err != nil {
		t.Fatal(err)
	}
	return stream.Bytes()
}

const testCluster = 0xc1

func testReceipt() Receipt {
	return Receipt{ClusterID: testCluster, Domain: 9, Now: func() clock.Instant { return clock.Instant{Raw: 70, Boot: 71} }}
}

// ownOf returns the own records of a member whose state contains entry index.
func ownOf(member, index uint64) []record.Record {
	return []record.Record{
		recordOf(record.KeyIdentity, &logpb.Identity{Format: record.Format, ClusterId: testCluster, MemberId: member, Incarnation: 0x100 + member}),
		recordOf(record.KeyApplied, &logpb.Applied{Index: index, Term: 3}),
		recordOf([]byte("rd"), &logpb.Domain{Sequence: uint32(member)}),
		recordOf([]byte("rp"), &logpb.Promised{LongestNs: int64(member)}),
		recordOf(binary.BigEndian.AppendUint64([]byte{record.FamilyLog}, index), &raftpb.Entry{Index: new(index), Term: new(uint64(3)), Data: fmt.Appendf(nil, "of %d", member)}),
	}
}

// randomShared returns random records in shared families whose contents this package does not read.
func randomShared(rng *rand.Rand, n int) (records []record.Record) {
	for range n {
		key := append([]byte{"ehmnpv"[rng.IntN(6)]}, randomBytes(rng, 40)...)
		records = append(records, record.Record{Key: key, Value: randomBytes(rng, 1<<rng.IntN(14))})
	}
	if rng.IntN(2) == 0 {
		records = append(records, recordOf(record.KeyForgotten, &logpb.Forgotten{Last: rng.Int64()}))
	}
	return records
}

func randomBytes(rng *rand.Rand, limit int) []byte {
	b := make([]byte, rng.IntN(limit+1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func stageIn(m bareMember, stream io.Reader) (*Staged, error) {
	return Stage(context.Background(), m.fs, "", rand.Uint64(), stream, testReceipt())
}

// ownAt returns the own records of a member that has installed the state of an entry.
func ownAt(index uint64) []record.Record {
	end := &logpb.Applied{Index: index, Term: 3}
	return []record.Record{
		recordOf([]byte("rh"), &raftpb.HardState{Term: new(uint64(4)), Vote: new(uint64(2)), Commit: new(index)}),
		recordOf(record.KeyApplied, end),
		recordOf([]byte("rt"), end),
	}
}

func recordOf(key []byte, m proto.Message) record.Record {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(err)
	}
	return record.Record{Key: key, Value: value}
}

// leaseOne is the key of lease 1's record.
var leaseOne = []byte{record.FamilyLease, 0x80, 0, 0, 0, 0, 0, 0, 1}

// After an installation the receiver has the sender's shared records and its own records, except for those that the
// snapshot changes.
func TestInstallReplacesSharedRecords(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		from, to := openBare(t, vfs.NewMem()), openBare(t, vfs.NewMem())
		common := randomShared(rng, rng.IntN(400))
		from.set(t, pebble.Sync, common...)
		from.set(t, pebble.Sync, ownOf(1, 50)...)
		to.set(t, pebble.Sync, randomShared(rng, rng.IntN(400))...)
		to.set(t, pebble.Sync, ownOf(2, 20)...)

		var reader io.Reader = bytes.NewReader(from.stream(t))
		if seed%4 == 0 {
			reader = iotest.OneByteReader(reader)
		}
		staged, err := stageIn(to, reader)
		if err != nil {
			t.Fatal(err)
		}
		own := ownAt(staged.Index)
		if err := Install(context.Background(), to.db, staged, own); err != nil {
			t.Fatal(err)
		}
		wanted := openBare(t, vfs.NewMem())
		wanted.set(t, pebble.NoSync, common...)
		kept := slices.DeleteFunc(ownOf(2, 20), func(r record.Record) bool { return r.Key[0] == record.FamilyLog })
		wanted.set(t, pebble.NoSync, kept...)
		wanted.set(t, pebble.NoSync, own...)
		if got, want := to.records(t), wanted.records(t); !slices.Equal(got, want) {
			t.Errorf("seed %d: there is\n%s\nand not\n%s", seed, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, m := range []bareMember{from, to, wanted} {
			if err := m.db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A member that receives the state of a held-off member is held off for the same time, counted from the receipt. A state
// without a hold-off ends the receiver's.
func TestHoldOffCountsFromReceipt(t *testing.T) {
	key := record.KeyHoldOff
	for _, sent := range []bool{true, false} {
		from, to := openBare(t, vfs.NewMem()), openBare(t, vfs.NewMem())
		from.set(t, pebble.Sync, ownOf(1, 50)...)
		to.set(t, pebble.Sync, append(ownOf(2, 20), recordOf(key, &logpb.HoldOff{DurationNs: 5}))...)
		if sent {
			from.set(t, pebble.Sync, recordOf(key, &logpb.HoldOff{DurationNs: 7, Began: &logpb.Instant{RawNs: -1, BootNs: -1}, Domain: 99}))
		}
		staged, err := stageIn(to, bytes.NewReader(from.stream(t)))
		if err != nil {
			t.Fatal(err)
		}
		if err := Install(context.Background(), to.db, staged, ownAt(staged.Index)); err != nil {
			t.Fatal(err)
		}
		m, now := new(logpb.HoldOff), testReceipt().Now()
		found, err := record.Load(to.db, key, m)
		if err != nil || found != sent || sent && (m.DurationNs != 7 || m.Domain != testReceipt().Domain || m.Began.GetRawNs() != now.Raw || m.Began.GetBootNs() != now.Boot) {
			t.Errorf("sent: %t, found: %t, %v, %v", sent, found, m, err)
		}
		if err := errors.Join(from.db.Close(), to.db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// leftovers returns the staged states in a data directory.
func leftovers(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("")
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, datadir.StagedPrefix) })
}

// A stream that is cut off, damaged, or of another kind is refused with a clear message, and leaves no files.
func TestDamagedStateIsRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	from, to := openBare(t, vfs.NewMem()), openBare(t, vfs.NewMem())
	defer func() {
		if err := errors.Join(from.db.Close(), to.db.Close()); err != nil {
			t.Fatal(err)
		}
	}()
	from.set(t, pebble.Sync, randomShared(rng, 300)...)
	from.set(t, pebble.Sync, ownOf(1, 50)...)
	to.set(t, pebble.Sync, ownOf(2, 20)...)
	whole := from.stream(t)
	before := to.records(t)

	refused := func(what, text string, stream []byte) {
		t.Helper()
		_, err := stageIn(to, bytes.NewReader(stream))
		if err == nil || !strings.Contains(err.Error(), "is refused, and this member keeps its own: ") || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
		if left := leftovers(t, to.fs); len(left) > 0 {
			t.Fatalf("%s: %v is left", what, left)
		}
	}
	refused("nothing", "not complete", nil)
	for range 60 {
		at := rng.IntN(len(whole))
		refused(fmt.Sprintf("cut off at %d", at), "not complete", whole[:at])
		flipped := bytes.Clone(whole)
		flipped[at] ^= 1 << rng.IntN(8)
		refused(fmt.Sprintf("another bit at %d of %d", at, len(whole)), "", flipped)
	}
	version := bytes.Clone(whole)
	version[len(stateMagic)]++
	refused("another version", "of version 2 and this program knows version 1", version)
	_, err := Stage(context.Background(), to.fs, "", rand.Uint64(), bytes.NewReader(whole), Receipt{ClusterID: 5, Now: testReceipt().Now})
	if err == nil || !strings.Contains(err.Error(), "it is of another cluster: of c1, and this member belongs to 5") {
		t.Errorf("another cluster: %v", err)
	}
	if after := to.records(t); !slices.Equal(before, after) {
		t.Error("the own state has changed")
	}
}

// forge makes a stream with correct checksums from any records.
func forge(header *memberpb.StateHeader, records []record.Record, claimed uint64) []byte {
	stream := append([]byte(stateMagic), stateVersion)
	sum := crc32.Update(0, stateSums, stream)
	frame := func(body []byte) {
		sum = crc32.Update(sum, stateSums, body)
		stream = binary.BigEndian.AppendUint32(stream, uint32(len(body)))
		stream = append(binary.BigEndian.AppendUint32(stream, sum), body...)
	}
	encoded, err := proto.Marshal(header)
	if err != nil {
		panic(err)
	}
	frame(append([]byte{frameHeader}, encoded...))
	body := []byte{frameRecords}
	for _, r := range records {
		body = append(binary.AppendUvarint(body, uint64(len(r.Key))), r.Key...)
		body = append(binary.AppendUvarint(body, uint64(len(r.Value))), r.Value...)
	}
	frame(body)
	frame(binary.BigEndian.AppendUint64([]byte{frameEnd}, claimed))
	return stream
}

// A stream that no member writes is refused even if its checksums are correct.
func TestInvalidStateWithCorrectChecksumsIsRefused(t *testing.T) {
	good := func() *memberpb.StateHeader {
		return &memberpb.StateHeader{Format: record.Format, ClusterId: testCluster, Index: 5, Term: 2}
	}
	v1, v2 := record.Record{Key: []byte("v1"), Value: nil}, record.Record{Key: []byte("v2"), Value: []byte("x")}
	to := bareMember{fs: vfs.NewMem()}
	staged, err := stageIn(to, bytes.NewReader(forge(good(), []record.Record{v1, v2}, 2)))
	if err != nil || staged.Index != 5 || staged.Term != 2 {
		t.Fatalf("the forged state is refused: %+v, %v", staged, err)
	}
	if err := staged.Discard(); err != nil {
		t.Fatal(err)
	}
	none, noTerm, format := good(), good(), good()
	none.Index, noTerm.Term = 0, 0
	format.Format++
	for _, c := range []struct {
		what   string
		stream []byte
	}{
		{"it is of no log entry", forge(none, nil, 0)},
		{"it is of no log entry", forge(noTerm, nil, 0)},
		{"of format 3 and this program knows format 2", forge(format, nil, 0)},
		{`record "v1" is out of order`, forge(good(), []record.Record{v2, v1}, 2)},
		{`record "v1" is out of order`, forge(good(), []record.Record{v1, v1}, 2)},
		{"it has 1 records and says that it has 2", forge(good(), []record.Record{v1}, 2)},
		{"which members do not share", forge(good(), []record.Record{{Key: []byte("l12345678"), Value: nil}}, 1)},
		{"which members do not share", forge(good(), []record.Record{{Key: record.KeyIdentity}}, 1)},
		{"which members do not share", forge(good(), []record.Record{{Key: nil, Value: nil}}, 1)},
		{"cannot be read", forge(good(), []record.Record{{Key: leaseOne, Value: []byte{0xff}}}, 1)},
	} {
		if _, err := stageIn(to, bytes.NewReader(c.stream)); err == nil || !strings.Contains(err.Error(), c.what) {
			t.Errorf("%s: %v", c.what, err)
		}
		if left := leftovers(t, to.fs); len(left) > 0 {
			t.Fatalf("%s: %v is left", c.what, left)
		}
	}
}

// Staging ends with its context, and leaves no files.
func TestStagingHonoursContext(t *testing.T) {
	from, fs := openBare(t, vfs.NewMem()), vfs.NewMem()
	from.set(t, pebble.Sync, append(ownOf(1, 50), record.Record{Key: []byte("v1"), Value: nil})...)
	stream := from.stream(t)
	if err := from.db.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := Stage(ctx, fs, "", rand.Uint64(), bytes.NewReader(stream), testReceipt()); !errors.Is(err, stopped) {
		t.Errorf("staged: %v", err)
	}
	if left := leftovers(t, fs); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// A record of an unknown family makes sending fail; it is not omitted silently.
func TestStateWithAnUnknownFamilyIsNotSent(t *testing.T) {
	from := openBare(t, vfs.NewMem())
	from.set(t, pebble.Sync, append(ownOf(1, 50), record.Record{Key: []byte("zebra"), Value: nil})...)
	snapshot := from.db.NewSnapshot()
	if err := Write(io.Discard, snapshot); err == nil || !strings.Contains(err.Error(), "zebra") {
		t.Errorf("it was sent: %v", err)
	}
	if err := errors.Join(snapshot.Close(), from.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A state that is replaced while it is being sent is sent as it was.
func TestReplacedStateIsSentAsItWas(t *testing.T) {
	from := openBare(t, vfs.NewMem())
	records := randomShared(rand.New(rand.NewPCG(1, 9)), 500)
	from.set(t, pebble.Sync, records...)
	from.set(t, pebble.Sync, ownOf(1, 50)...)
	want := from.stream(t)
	early, late := from.db.NewSnapshot(), from.db.NewSnapshot()
	state, err := NewReader(early)
	if err != nil {
		t.Fatal(err)
	}
	begin := make([]byte, 100)
	if _, err := io.ReadFull(state, begin); err != nil {
		t.Fatal(err)
	}
	everything := pebble.KeyRange{Start: []byte{0}, End: []byte{0xff}}
	if err := errors.Join(from.db.Flush(), from.db.Excise(context.Background(), everything)); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(state)
	if err != nil || !bytes.Equal(append(begin, rest...), want) {
		t.Errorf("%d bytes were sent and not %d: %v", len(begin)+len(rest), len(want), err)
	}
	if _, err := NewReader(late); err == nil {
		t.Fatal("a state that is gone can be sent")
	}
	if err := errors.Join(state.Close(), early.Close(), late.Close(), from.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// crashes copies a disk as a power cut would leave it, before each operation on it.
type crashes struct {
	mu     sync.Mutex
	disk   *vfs.MemFS
	rng    *rand.Rand
	armed  bool
	copies []*vfs.MemFS
}

func (c *crashes) MaybeError(errorfs.Op) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.armed {
		c.copies = append(c.copies, c.disk.CrashClone(vfs.CrashCloneCfg{}),
			c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: c.rng}))
	}
	return nil
}

func (c *crashes) String() string { return "crashes" }

// After a power cut during the installation the database holds the old state or the new one. After the installation
// it holds the new one, whatever the write-ahead log still contained.
func TestInstallationIsAtomic(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 10))
		from := openBare(t, vfs.NewMem())
		from.set(t, pebble.Sync, randomShared(rng, 50)...)
		from.set(t, pebble.Sync, ownOf(1, 50)...)
		cut := &crashes{disk: vfs.NewCrashableMem(), rng: rng}
		to := openBare(t, errorfs.Wrap(cut.disk, cut))
		to.set(t, pebble.Sync, randomShared(rng, 50)...)
		to.set(t, pebble.Sync, ownOf(2, 20)...)
		synced := to.records(t)
		to.set(t, pebble.NoSync, randomShared(rng, 5)...)
		old := to.records(t)
		staged, err := stageIn(to, bytes.NewReader(from.stream(t)))
		if err != nil {
			t.Fatal(err)
		}
		cut.armed = true
		if err := Install(context.Background(), to.db, staged, ownAt(staged.Index)); err != nil {
			t.Fatal(err)
		}
		cut.mu.Lock()
		cut.armed = false
		during := len(cut.copies)
		cut.copies = append(cut.copies, cut.disk.CrashClone(vfs.CrashCloneCfg{}),
			cut.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rng}))
		cut.mu.Unlock()
		fresh := to.records(t)
		var before, after int
		for i, disk := range cut.copies {
			m := openBare(t, disk)
			switch got := m.records(t); {
			case slices.Equal(got, fresh):
				after++
			case i < during && (slices.Equal(got, old) || slices.Equal(got, synced)):
				before++
			default:
				t.Errorf("seed %d, cut %d of %d: there is\n%s\nold:\n%s\nnew:\n%s", seed, i, during,
					strings.Join(got, "\n"), strings.Join(old, "\n"), strings.Join(fresh, "\n"))
			}
			if err := m.db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d cuts: %d before and %d after", len(cut.copies), before, after)
		if before < 10 || after < 3 {
			t.Errorf("the cuts do not show both: %d before, %d after", before, after)
		}
		if err := errors.Join(from.db.Close(), to.db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
