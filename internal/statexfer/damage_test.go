package statexfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// framed makes a stream of frames with correct lengths and checksums. Each begins with its kind.
func framed(frames ...string) []byte {
	stream := append([]byte(stateMagic), stateVersion)
	sum := crc32.Update(0, stateSums, stream)
	for _, body := range frames {
		sum = crc32.Update(sum, stateSums, []byte(body))
		stream = binary.BigEndian.AppendUint32(stream, uint32(len(body)))
		stream = append(binary.BigEndian.AppendUint32(stream, sum), body...)
	}
	return stream
}

// A stream with damaged frames but correct checksums is refused with a message that names the damage, and leaves no
// files.
func TestDamagedFramesAreRefused(t *testing.T) {
	encoded, err := proto.Marshal(&memberpb.StateHeader{Format: record.Format, ClusterId: testCluster, Index: 5, Term: 2})
	if err != nil {
		t.Fatal(err)
	}
	header := string(frameHeader) + string(encoded)
	end := func(n uint64) string {
		return string(binary.BigEndian.AppendUint64([]byte{frameEnd}, n))
	}
	good := framed(header, "r\x02v1\x01x", end(1))
	magic := bytes.Clone(good)
	magic[0] ^= 1
	sized := func(size uint32) []byte {
		stream := framed(header)
		return append(binary.BigEndian.AppendUint32(stream, size), make([]byte, 100)...)
	}
	for _, c := range []struct {
		name, want string
		stream     []byte
	}{
		{"another magic", "does not begin like one", magic},
		{"a header of another kind", "its header cannot be read", framed("r"+string(encoded), end(0))},
		{"a header that is none", "its header cannot be read", framed("h\xff", end(0))},
		{"no header", "not complete", framed()},
		{"a header that is cut off", "not complete", framed(header)[:len(framed(header))-1]},
		{"a length that is cut off", "not complete", good[:len(stateMagic)+1+frameHead/2]},
		{"a second header", "it has a frame of kind 'h'", framed(header, header, end(0))},
		{"a frame of an unknown kind", "it has a frame of kind 'x'", framed(header, "x", end(0))},
		{"an end that is too short", "it has a frame of kind 'e'", framed(header, "e\x00\x00\x00\x00")},
		{"no end", "not complete", framed(header, "r\x02v1\x01x")},
		{"a frame of no bytes", "a frame has 0 bytes", framed(header, "", end(0))},
		{"a frame that is too long", "a frame has 268435457 bytes", sized(maxFrame + 1)},
		{"a frame that is cut off", "not complete", sized(maxFrame)},
		{"a key that is longer than its frame", "record 0 cannot be read", framed(header, "r\x09v1", end(1))},
		{"a value that is longer than its frame", "record 1 cannot be read", framed(header, "r\x02v1\x01x\x02v2\x09x", end(2))},
		{"a key without a value", "record 0 cannot be read", framed(header, "r\x02v1", end(1))},
		{"a key twice", "is out of order", framed(header, "r\x02v1\x01x\x02v1\x01y", end(2))},
		{"a key twice, in two frames", "is out of order", framed(header, "r\x02v1\x01x", "r\x02v1\x01y", end(2))},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := bareMember{fs: vfs.NewMem()}
			_, err := stageIn(to, bytes.NewReader(c.stream))
			if err == nil || !strings.Contains(err.Error(), "is refused, and this member keeps its own: ") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if left := leftovers(t, to.fs); len(left) > 0 {
				t.Errorf("%v is left", left)
			}
		})
	}
	to := bareMember{fs: vfs.NewMem()}
	if _, err := stageIn(to, bytes.NewReader(good)); err != nil {
		t.Errorf("an undamaged one: %v", err)
	}
}

// A member that cannot read its own identity or applied index sends nothing.
func TestStateWithoutAHeaderIsNotSent(t *testing.T) {
	for what, damage := range map[string]func(*pebble.Batch) error{
		"no identity":            func(b *pebble.Batch) error { return b.Delete(record.KeyIdentity, nil) },
		"an identity that is no": func(b *pebble.Batch) error { return b.Set(record.KeyIdentity, []byte{0xff}, nil) },
		"no place in the log":    func(b *pebble.Batch) error { return b.Delete(record.KeyApplied, nil) },
		"a place that is none":   func(b *pebble.Batch) error { return b.Set(record.KeyApplied, []byte{0xff}, nil) },
	} {
		from := openBare(t, vfs.NewMem())
		from.set(t, pebble.Sync, ownOf(1, 50)...)
		batch := from.db.NewBatch()
		if err := errors.Join(damage(batch), batch.Commit(pebble.Sync)); err != nil {
			t.Fatal(err)
		}
		snapshot := from.db.NewSnapshot()
		var sent bytes.Buffer
		if err := Write(&sent, snapshot); err == nil || sent.Len() > 0 {
			t.Errorf("%s: %d bytes are sent: %v", what, sent.Len(), err)
		}
		if err := errors.Join(snapshot.Close(), from.db.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// An installation writes only own records into the family of own records.
func TestInstallRefusesSharedRecordAsOwn(t *testing.T) {
	from, to := openBare(t, vfs.NewMem()), openBare(t, vfs.NewMem())
	from.set(t, pebble.Sync, ownOf(1, 50)...)
	to.set(t, pebble.Sync, ownOf(2, 20)...)
	before := to.records(t)
	staged, err := stageIn(to, bytes.NewReader(from.stream(t)))
	if err != nil {
		t.Fatal(err)
	}
	foreign := record.Record{Key: leaseOne, Value: []byte("x")}
	if err := Install(context.Background(), to.db, staged, []record.Record{foreign}); err == nil {
		t.Error("a record that members share is written as the member's own")
	}
	if after := to.records(t); strings.Join(before, "\n") != strings.Join(after, "\n") {
		t.Error("the own state has changed")
	}
	if err := errors.Join(from.db.Close(), to.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A state belongs to one snapshot: that of its last entry.
func TestStateBelongsToItsSnapshot(t *testing.T) {
	staged := &Staged{Index: 5, Term: 2}
	for _, c := range []struct {
		index, term uint64
		ok          bool
	}{{5, 2, true}, {6, 2, false}, {5, 3, false}} {
		snapshot := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &c.index, Term: &c.term}}
		if err := staged.Check(snapshot); (err == nil) != c.ok {
			t.Errorf("for entry %d of term %d: %v", c.index, c.term, err)
		}
	}
}

// A receiver writes few files, however many records come, and writes its own log between them.
func TestStagedTablesAreFew(t *testing.T) {
	from := openBare(t, vfs.NewMem())
	from.set(t, pebble.Sync, ownOf(1, 50)...)
	for i := range byte(50) {
		from.set(t, pebble.Sync, record.Record{Key: []byte{'v', i}, Value: []byte("x")})
	}
	staged, err := stageIn(from, bytes.NewReader(from.stream(t)))
	if err != nil || len(staged.tables) > len(sharedFamilies) {
		t.Fatalf("%d tables, %v", len(staged.tables), err)
	}
	tables, err := staged.addOwn([]record.Record{{Key: record.LogKey(51), Value: []byte("x")}, {Key: record.KeyApplied, Value: []byte("x")}})
	if err != nil || len(tables) != len(staged.tables)+2 {
		t.Errorf("with its own records a member has %d tables, %v", len(tables), err)
	}
	if err := errors.Join(staged.Discard(), from.db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A sender has one frame in memory at a time, however large its state is.
func TestFramesAreBounded(t *testing.T) {
	from := openBare(t, vfs.NewMem())
	from.set(t, pebble.Sync, ownOf(1, 50)...)
	const records, size = 50, 10 << 10
	for i := range byte(records) {
		from.set(t, pebble.Sync, record.Record{Key: []byte{'v', i}, Value: make([]byte, size)})
	}
	snapshot := from.db.NewSnapshot()
	reader, err := NewReader(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := io.Copy(io.Discard, reader)
	if err != nil || sent < records*size {
		t.Fatalf("%d bytes, %v", sent, err)
	}
	if n := cap(reader.frame); n > 2*(frameBytes+size) {
		t.Errorf("a frame of %d bytes was made", n)
	}
	if err := errors.Join(reader.Close(), snapshot.Close(), from.db.Close()); err != nil {
		t.Fatal(err)
	}
}

var errDisk = errors.New("a disk that fails")

// failing makes one of the operations fail for which counts is true: the first after left has counted down to zero.
type failing struct {
	counts func(errorfs.Op) bool
	mu     sync.Mutex
	left   int // operations that succeed before the failure; negative: none fails
	fired  bool
}

func (f *failing) MaybeError(op errorfs.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left < 0 || !f.counts(op) {
		return nil
	}
	if f.left--; f.left >= 0 {
		return nil
	}
	f.fired = true
	return errDisk
}

// after lets n operations succeed and makes the next fail.
func (f *failing) after(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = n
}

// stop ends the failures, and reports whether an operation failed.
func (f *failing) stop() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = -1
	return f.fired
}

func (f *failing) String() string { return "failing" }

// readsTable reports whether an operation reads a table of the database.
func readsTable(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst")
}

// writesStage reports whether an operation writes a staged state.
func writesStage(op errorfs.Op) bool {
	switch op.Kind {
	case errorfs.OpMkdirAll, errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync:
		return strings.Contains(op.Path, datadir.StagedPrefix)
	}
	return false
}

// openOnDisk opens a database with nothing in memory.
func openOnDisk(t *testing.T, fs vfs.FS) bareMember {
	t.Helper()
	options := datadir.DatabaseOptions(fs, func(error) {})
	options.MemTableSize, options.CacheSize, options.DisableAutomaticCompactions = 256<<10, 1, true
	options.DisableTableStats = true // no reads in the background
	db, err := datadir.OpenDatabase("db", options)
	if err != nil {
		t.Fatal(err)
	}
	return bareMember{fs, db}
}

// onDisk returns a disk with the records of a member in tables.
func onDisk(t *testing.T, member, index uint64) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	m := openBare(t, disk)
	m.set(t, pebble.Sync, randomShared(rand.New(rand.NewPCG(member, 11)), 60)...)
	m.set(t, pebble.Sync, ownOf(member, index)...)
	if err := errors.Join(m.db.Flush(), m.db.Close()); err != nil {
		t.Fatal(err)
	}
	return disk
}

// atEach runs a test with the first counted operation failing, then with the second, and so on, until none fails.
func atEach(t *testing.T, counts func(errorfs.Op) bool, test func(n int, f *failing)) {
	t.Helper()
	for n := 0; ; n++ {
		if n > 1000 {
			t.Fatal("some operation always fails")
		}
		f := &failing{left: -1, counts: counts}
		if test(n, f); !f.stop() {
			if n == 0 {
				t.Error("nothing failed")
			}
			return
		}
	}
}

// A read error while sending is returned, and is not taken for the end of the state.
func TestReadErrorWhileSendingIsReturned(t *testing.T) {
	disk := onDisk(t, 1, 50)
	atEach(t, readsTable, func(n int, f *failing) {
		from := openOnDisk(t, errorfs.Wrap(disk.CrashClone(vfs.CrashCloneCfg{}), f))
		snapshot := from.db.NewSnapshot()
		f.after(n)
		err := Write(io.Discard, snapshot)
		if fired := f.stop(); fired != errors.Is(err, errDisk) {
			t.Errorf("read %d: failed %v, and %v is returned", n, fired, err)
		}
		if err := errors.Join(snapshot.Close(), from.db.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// A state that cannot be written is not staged, and leaves no files.
func TestWriteErrorWhileStagingIsReturned(t *testing.T) {
	from := openBare(t, onDisk(t, 1, 50))
	stream := from.stream(t)
	if err := from.db.Close(); err != nil {
		t.Fatal(err)
	}
	atEach(t, writesStage, func(n int, f *failing) {
		to := bareMember{fs: errorfs.Wrap(vfs.NewMem(), f)}
		f.after(n)
		_, err := stageIn(to, bytes.NewReader(stream))
		if fired := f.stop(); fired != errors.Is(err, errDisk) {
			t.Errorf("operation %d: failed %v, and %v is returned", n, fired, err)
		}
		if left := leftovers(t, to.fs); err != nil && len(left) > 0 {
			t.Errorf("operation %d: %v is left", n, left)
		}
	})
}

// An installation returns an error if it cannot read or write the member's own records.
func TestErrorWhileInstallingIsReturned(t *testing.T) {
	from := openBare(t, onDisk(t, 1, 50))
	stream := from.stream(t)
	if err := from.db.Close(); err != nil {
		t.Fatal(err)
	}
	disk := onDisk(t, 2, 20)
	counts := func(op errorfs.Op) bool { return readsTable(op) || writesStage(op) }
	atEach(t, counts, func(n int, f *failing) {
		to := openOnDisk(t, errorfs.Wrap(disk.CrashClone(vfs.CrashCloneCfg{}), f))
		staged, err := stageIn(to, bytes.NewReader(stream))
		if err != nil {
			t.Fatal(err)
		}
		f.after(n)
		err = Install(context.Background(), to.db, staged, ownAt(staged.Index))
		if fired := f.stop(); fired != errors.Is(err, errDisk) {
			t.Errorf("operation %d: failed %v, and %v is returned", n, fired, err)
		}
		if err := to.db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
