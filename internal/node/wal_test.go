package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// The database's logs consist of blocks of walBlock bytes; see package datadir.
const (
	walBlock  = 32 << 10
	walSuffix = ".log"
)

// syncRecorder records how long every write-ahead log was at each sync.
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
	if f == nil || !strings.HasSuffix(name, walSuffix) {
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

// crowdedDirectory returns the data directory of a killed member with many concurrent writers, the lengths of its logs
// at each sync, and the last acknowledged entry.
func crowdedDirectory(t *testing.T, writers, puts int) (left string, syncs map[string][]int64, acknowledged uint64) {
	t.Helper()
	recorder := &syncRecorder{FS: vfs.Default, syncs: make(map[string][]int64)}
	dir := t.TempDir()
	n, err := Start(context.Background(), Config{Dir: dir, FS: recorder, logKeep: 1 << 20})
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
	return left, maps.Clone(recorder.syncs), status.AppliedIndex // read before the member stops
}

// startsUpTo opens a copy of a data directory's database in memory, with text as the content of one log. It returns
// the last log entry that the database then holds.
func startsUpTo(t *testing.T, dir, log string, text []byte) (last uint64, err error) {
	t.Helper()
	files := vfs.NewMem()
	if _, err := vfs.Clone(vfs.Default, files, filepath.Join(dir, datadir.DatabaseDir), datadir.DatabaseDir); err != nil {
		t.Fatal(err)
	}
	f, err := files.Create(files.PathJoin(datadir.DatabaseDir, log), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(slices.Clone(text)) // with the race detector, a file in memory overwrites its argument
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := datadir.OpenDatabase(datadir.DatabaseDir, datadir.DatabaseOptions(files, func(error) {}))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{'l'}, UpperBound: []byte{'l' + 1}}) // of the log
	if err != nil {
		return 0, err
	}
	if it.Last() {
		last = binary.BigEndian.Uint64(it.Key()[1:])
	}
	return last, errors.Join(it.Error(), it.Close())
}

func upTo(last uint64, err error) uint64 {
	if err != nil {
		return 0
	}
	return last
}

// Eight bytes that change anywhere in a log are detected, or change nothing acknowledged except the last sync. There
// are many writers, so that blocks fill up between two syncs; logs are closed and reused.
func TestDamageAnywhereInLogIsReported(t *testing.T) {
	left, syncs, acknowledged := crowdedDirectory(t, 16, 400)
	names, err := filepath.Glob(filepath.Join(left, datadir.DatabaseDir, "*"+walSuffix))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	reported, harmless, blocks := 0, 0, 0
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
		last := of[len(of)-2] // where the last sync begins
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
				case !strings.Contains(datadir.Explain("d", err).Error(), "restore the data directory from a copy"):
					t.Errorf("%s damaged at byte %d: %v", name, at, err)
				default:
					reported++
				}
			}
		}
	}
	t.Logf("%d blocks in %d logs: reported %d, harmless %d", blocks, len(names), reported, harmless)
	if blocks < 20 || reported == 0 {
		t.Errorf("%d blocks were damaged, and %d times it was reported", blocks, reported)
	}
}

// Unsynced data may be present, missing, or present without earlier data after a power cut. The member starts in all
// cases, with everything that was synced.
func TestTornUnsyncedSectorsAreNoDamage(t *testing.T) {
	left, syncs, _ := crowdedDirectory(t, 16, 30)
	names, err := filepath.Glob(filepath.Join(left, datadir.DatabaseDir, "*"+walSuffix))
	if err != nil || len(names) > 2 {
		t.Fatal(names, err) // there may be only one log, so that the directory stays the same otherwise
	}
	name := filepath.Base(names[len(names)-1]) // the log before it was made together with the database
	whole, err := os.ReadFile(filepath.Join(left, datadir.DatabaseDir, name))
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

// A chunk whose log number was changed to that of the next log looks like the end of a closed log.
func TestChunkOfNextLogIsNotTheEnd(t *testing.T) {
	left, syncs, _ := crowdedDirectory(t, 4, 20)
	for name, of := range syncs {
		whole, err := os.ReadFile(filepath.Join(left, datadir.DatabaseDir, name))
		if err != nil || len(of) < 4 {
			continue
		}
		// A chunk begins with a checksum (4 bytes), a length (2), a kind (1) and the number of the log.
		text, first := slices.Clone(whole), 19+int(binary.LittleEndian.Uint16(whole[4:]))
		text[first+7]++
		if _, err := startsUpTo(t, left, name, whole); err != nil {
			t.Errorf("%s as it is: %v", name, err)
		}
		if _, err := startsUpTo(t, left, name, text); !errors.As(err, new(*record.DamagedError)) {
			t.Errorf("%s with another number in its second chunk: %v", name, err)
		}
		return
	}
	t.Fatal("no log is left")
}
