package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// syncRecorder notes for every write-ahead log how far it was written whenever it had been synced.
type syncRecorder struct {
	vfs.FS
	mu    sync.Mutex
	syncs map[string][]int64 // by base name
}

func (r *syncRecorder) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := r.FS.Create(name, category)
	return r.record(name, f), err
}

func (r *syncRecorder) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := r.FS.ReuseForWrite(old, name, category)
	return r.record(name, f), err
}

func (r *syncRecorder) record(name string, f vfs.File) vfs.File {
	if f == nil || !isWAL(name) {
		return f
	}
	return &recordedWAL{File: f, recorder: r, base: r.PathBase(name)}
}

type recordedWAL struct {
	vfs.File
	recorder *syncRecorder
	base     string
	written  int64
}

func (f *recordedWAL) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.written += int64(n)
	return n, err
}

func (f *recordedWAL) Sync() error     { return f.synced(f.File.Sync()) }
func (f *recordedWAL) SyncData() error { return f.synced(f.File.SyncData()) }

func (f *recordedWAL) synced(err error) error {
	f.recorder.mu.Lock()
	defer f.recorder.mu.Unlock()
	if of := f.recorder.syncs[f.base]; err == nil && (len(of) == 0 || of[len(of)-1] < f.written) {
		f.recorder.syncs[f.base] = append(of, f.written)
	}
	return err
}

// crowdedFolder returns the folder that a killed member leaves to whom many wrote at the same time, how its logs were
// synced, and the last entry that was acknowledged.
func crowdedFolder(t *testing.T, writers, puts int) (left string, syncs map[string][]int64, acknowledged uint64) {
	t.Helper()
	recorder := &syncRecorder{FS: vfs.Default, syncs: make(map[string][]int64)}
	dir := t.TempDir()
	n, err := Start(context.Background(), NodeConfig{Dir: dir, FS: recorder, logKeep: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Stop(context.Background())
	<-n.Ready()
	value := bytes.Repeat([]byte("v"), 1000)
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range puts {
				if _, _, err := n.Put(context.Background(), keyspace.PutRequest{Key: fmt.Appendf(nil, "%d/%d", w, i), Value: value}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	status, err := n.Status(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	left = killed(t, dir)
	recorder.mu.Lock()
	defer recorder.mu.Unlock()
	return left, maps.Clone(recorder.syncs), status.AppliedIndex // of before the member stops
}

// startsUpTo opens a folder's database in memory, with another text for one of its logs, and returns the last entry of
// the log of entries.
func startsUpTo(t *testing.T, folder, log string, text []byte) (last uint64, err error) {
	t.Helper()
	files := vfs.NewMem()
	if _, err := vfs.Clone(vfs.Default, files, filepath.Join(folder, databaseDir), databaseDir); err != nil {
		t.Fatal(err)
	}
	f, err := files.Create(files.PathJoin(databaseDir, log), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(slices.Clone(text)) // a file in memory spoils what it is given if the race detector is on
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := openDatabase(databaseDir, databaseOptions(files, func(error) {}))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	applied := new(logpb.Applied)
	if _, err := load(db, keyApplied, applied); err != nil {
		return 0, err
	}
	entries, err := openLog(db, applied.Index, logStep)
	if err != nil {
		return 0, err
	}
	return entries.last, nil
}

func upTo(last uint64, err error) uint64 {
	if err != nil {
		return 0
	}
	return last
}

// Eight bytes that change anywhere in a log are told, or change nothing that was acknowledged, but for what was synced
// last. The writers are many, so that blocks fill up between two syncs; logs are closed, and used again.
func TestDamageAnywhereInALogOfManyWritersIsTold(t *testing.T) {
	left, syncs, acknowledged := crowdedFolder(t, 16, 400)
	names, err := filepath.Glob(filepath.Join(left, databaseDir, "*"+walSuffix))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	told, harmless, blocks := 0, 0, 0
	for _, path := range names {
		name := filepath.Base(path)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		of := syncs[name]
		if gone := make([]byte, len(whole)); len(of) < 2 || upTo(startsUpTo(t, left, name, gone)) == acknowledged {
			continue // the database needs it no longer
		}
		last := of[len(of)-2] // where what was synced last begins
		for begin := int64(0); begin < last; begin += walBlock {
			blocks++
			end := min(begin+walBlock, last) - 8
			for _, at := range []int64{begin, begin + dice.Int64N(max(1, end-begin)), max(begin, end)} {
				text := slices.Clone(whole)
				for i := range text[at : at+8] {
					text[at+int64(i)] ^= byte(1 + dice.IntN(255))
				}
				switch got, err := startsUpTo(t, left, name, text); {
				case err == nil && got < acknowledged:
					t.Errorf("%s damaged at byte %d of %d that were synced before the last: it starts with entries up to %d, and %d was acknowledged", name, at, last, got, acknowledged)
				case err == nil:
					harmless++
				case !strings.Contains(folderError("d", err).Error(), "restore the folder from a copy"):
					t.Errorf("%s damaged at byte %d: %v", name, at, err)
				default:
					told++
				}
			}
		}
	}
	t.Logf("%d blocks in %d logs: told %d, harmless %d", blocks, len(names), told, harmless)
	if blocks < 20 || told == 0 {
		t.Errorf("%d blocks were damaged, and %d times it was told", blocks, told)
	}
}

// What was not synced when the power failed may be there, be missing, or be there without what was written before it:
// the member starts, with all that had been synced.
func TestTornSectorsThatNobodySyncedAreNoDamage(t *testing.T) {
	left, syncs, _ := crowdedFolder(t, 16, 30)
	names, err := filepath.Glob(filepath.Join(left, databaseDir, "*"+walSuffix))
	if err != nil || len(names) > 2 {
		t.Fatal(names, err) // the folder must be the same as at each earlier moment, but for the log
	}
	name := filepath.Base(names[len(names)-1]) // the one before it was made together with the database
	whole, err := os.ReadFile(filepath.Join(left, databaseDir, name))
	if err != nil {
		t.Fatal(err)
	}
	const sector = 512
	dice := rand.New(rand.NewPCG(3, 4))
	of, torn := syncs[name], 0
	for i := 1; i < len(of); i += 4 {
		synced, written := of[i-1], of[i]
		before := make([]byte, len(whole))
		copy(before, whole[:synced])
		want, err := startsUpTo(t, left, name, before)
		if err != nil {
			t.Fatalf("the log as it was at byte %d: %v", synced, err)
		}
		for range 3 {
			text := slices.Clone(before)
			for at := synced / sector * sector; at < written; at += sector {
				if end := min(at+sector, written); dice.IntN(3) > 0 {
					copy(text[at:end], whole[at:end])
				} else {
					torn++
				}
			}
			if got, err := startsUpTo(t, left, name, text); err != nil || got < want {
				t.Errorf("synced up to byte %d, torn up to byte %d: it starts with entries up to %d, %v; %d were synced", synced, written, got, err, want)
			}
		}
	}
	if torn == 0 {
		t.Error("nothing was torn")
	}
}

// The number of a log that changed into that of the next one looks like the end of a log that was closed.
func TestAChunkOfTheNextLogIsNotTheEnd(t *testing.T) {
	left, syncs, _ := crowdedFolder(t, 4, 20)
	for name, of := range syncs {
		number, _ := walNumber(name)
		whole, err := os.ReadFile(filepath.Join(left, databaseDir, name))
		if err != nil || len(of) < 4 {
			continue
		}
		size, _ := walChunk(whole)
		text := slices.Clone(whole)
		text[size+walNumberAt] = byte(number + 1)
		if err := checkWAL(bytes.NewReader(whole), name, uint32(number), true); err != nil {
			t.Errorf("%s as it is: %v", name, err)
		}
		if err := checkWAL(bytes.NewReader(text), name, uint32(number), true); !errors.As(err, new(*DamagedError)) {
			t.Errorf("%s with another number in its second chunk: %v", name, err)
		}
		return
	}
	t.Fatal("no log is left")
}

// A log that was closed is read to its end, or damaged.
func TestALogThatWasClosedHasAnEnd(t *testing.T) {
	closed := []byte(walTrailer + "\x08\x00\x00\x00")
	for _, tried := range []struct {
		what    string
		text    []byte
		newest  bool
		damaged bool
	}{
		{"closed", closed, false, false},
		{"closed, and the newest", closed, true, false},
		{"without an end", nil, false, true},
		{"without an end, and the newest", nil, true, false},
		{"reserved and not written", make([]byte, 3*walBlock), true, false},
		{"with the end of another", []byte(walTrailer + "\x09\x00\x00\x00"), false, true},
	} {
		err := checkWAL(bytes.NewReader(tried.text), "000007.log", 7, tried.newest)
		if errors.As(err, new(*DamagedError)) != tried.damaged {
			t.Errorf("%s: %v", tried.what, err)
		}
	}
	if err := checkWAL(io.MultiReader(bytes.NewReader(closed), failing{}), "000007.log", 7, true); !errors.Is(err, errFailing) {
		t.Errorf("what can not be read: %v", err)
	}
}

var errFailing = errors.New("the disk does not answer")

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errFailing }

// What the database hands to a log is not changed: it is the database's memory.
func TestSayingWhatIsSyncedLeavesTheDatabasesMemoryAlone(t *testing.T) {
	files, path := vfs.Default, filepath.Join(t.TempDir(), "000007.log")
	f, err := databaseFiles{files}.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, walHead+5)
	chunk[4], chunk[6], chunk[walNumberAt] = 5, walFirst, 7
	sum := walSum(chunk[6:])
	chunk[0], chunk[1], chunk[2], chunk[3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
	given := slices.Clone(chunk)
	for range 2 {
		if _, err := f.Write(given); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(given, chunk) {
		t.Error("what was written was changed")
	}
	read, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	text, err := io.ReadAll(read)
	if err != nil {
		t.Fatal(err)
	}
	c := &walCheck{number: []byte{7, 0, 0, 0}, next: []byte{8, 0, 0, 0}, whole: true}
	c.block(text)
	if want := int64(len(chunk)); c.synced != want || c.intact != 2*want {
		t.Errorf("the log says that %d bytes were synced, and %d can be read; want %d and %d", c.synced, c.intact, want, 2*want)
	}
}

// BenchmarkSayingWhatIsSynced is what a write to the log costs beyond what the file system takes.
func BenchmarkSayingWhatIsSynced(b *testing.B) {
	for _, size := range []int{300, 1000, walBlock - walHead} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			chunk := make([]byte, walHead+size)
			chunk[4], chunk[5], chunk[6] = byte(size), byte(size>>8), walFirst
			sum := walSum(chunk[6:])
			chunk[0], chunk[1], chunk[2], chunk[3] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
			scratch := make([]byte, 0, len(chunk))
			b.SetBytes(int64(len(chunk)))
			for b.Loop() {
				scratch = append(scratch[:0], chunk...)
				saySynced(scratch, 0, 1)
			}
		})
	}
}
