package raftlog

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// disk is a database on a file system in memory that forgets unsynced writes in a crash.
type disk struct {
	t  *testing.T
	fs *vfs.MemFS
	db *pebble.DB
}

func newDisk(t *testing.T, fs *vfs.MemFS) *disk {
	db, err := pebble.Open("db", &pebble.Options{FS: fs, Logger: quiet{}})
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t, fs, db}
	t.Cleanup(func() {
		if err := d.db.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

type quiet struct{}

func (quiet) Infof(string, ...any)         {}
func (quiet) Errorf(string, ...any)        {}
func (quiet) Fatalf(text string, _ ...any) { panic(text) }

// crashed returns the disk as a crash at this moment would leave it.
func (d *disk) crashed() *disk {
	return newDisk(d.t, d.fs.CrashClone(vfs.CrashCloneCfg{}))
}

func (d *disk) open(applied uint64) *Log {
	d.t.Helper()
	l, err := Open(d.db, applied, DefaultStep)
	if err != nil {
		d.t.Fatal(err)
	}
	return l
}

func (d *disk) commit(sync bool, write func(*pebble.Batch)) {
	d.t.Helper()
	b := d.db.NewBatch()
	write(b)
	if err := b.Commit(&pebble.WriteOptions{Sync: sync}); err != nil {
		d.t.Fatal(err)
	}
}

// grow appends entries of a term and reports them as stable.
func (d *disk) grow(l *Log, term, first, last, applied uint64) {
	d.t.Helper()
	entries, hard := entriesOf(term, first, last), hardState(term, 0)
	d.commit(true, func(b *pebble.Batch) { l.Append(b, entries, hard) })
	l.Stable(entries, hard, applied)
}

func entriesOf(term, first, last uint64) (entries []*raftpb.Entry) {
	for index := first; index <= last; index++ {
		entries = append(entries, entryOf(term, index, []byte("data")))
	}
	return entries
}

func entryOf(term, index uint64, data []byte) *raftpb.Entry {
	return &raftpb.Entry{Term: new(term), Index: new(index), Data: data}
}

func hardState(term, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: new(term), Vote: new(uint64(0)), Commit: new(commit)}
}

// entryTerms returns the terms of all entries of a log from its first one on. It checks that the entries in memory agree.
func entryTerms(t *testing.T, l *Log) (all []uint64) {
	t.Helper()
	first, _ := l.FirstIndex()
	entries, err := l.Entries(first, l.Last()+1, math.MaxUint64)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if e.GetIndex() != first+uint64(i) {
			t.Fatalf("entry %d is at the place of entry %d", e.GetIndex(), first+uint64(i))
		}
		if term, err := l.Term(e.GetIndex()); err != nil || term != e.GetTerm() {
			t.Fatalf("entry %d has term %d, Term returns %d, %v", e.GetIndex(), e.GetTerm(), term, err)
		}
		all = append(all, e.GetTerm())
	}
	inMemory := 0
	for i, e := range l.tail {
		if inMemory += entryBytes(e); e.GetIndex() != l.Last()-uint64(len(l.tail))+1+uint64(i) {
			t.Fatalf("entry %d is in memory at place %d of %d, and the last is %d", e.GetIndex(), i, len(l.tail), l.Last())
		}
	}
	if inMemory != l.bytes {
		t.Fatalf("%d bytes are in memory, counted as %d", inMemory, l.bytes)
	}
	return all
}

func equal(a []uint64, b ...uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func TestAppendedEntriesAreVisibleOnceStable(t *testing.T) {
	d := newDisk(t, vfs.NewCrashableMem())
	l := d.open(0)
	entries, hard := entriesOf(1, 1, 3), hardState(1, 2)
	d.commit(false, func(b *pebble.Batch) { l.Append(b, entries, hard) })
	if l.Written() != 3 || l.Last() != 0 || l.HardState().GetTerm() != 0 {
		t.Errorf("before the report: written %d, last %d, hard state %v", l.Written(), l.Last(), l.HardState())
	}
	if _, err := l.Entries(1, 2, math.MaxUint64); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("an entry that is not stable: %v", err)
	}
	if _, err := l.Term(1); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("the term of an entry that is not stable: %v", err)
	}
	if after := d.crashed().open(0); after.Last() != 0 {
		t.Errorf("after a crash before the sync the log ends at %d", after.Last())
	}
	d.commit(true, func(b *pebble.Batch) { record.Remove(b, []byte("x")) }) // syncs the earlier batch too
	l.Stable(entries, hard, 0)
	if l.Last() != 3 || l.HardState().GetCommit() != 2 || !equal(entryTerms(t, l), 1, 1, 1) {
		t.Errorf("after the report: last %d, hard state %v, terms %v", l.Last(), l.HardState(), entryTerms(t, l))
	}
	if after := d.crashed().open(0); after.Last() != 3 || after.Written() != 3 || after.HardState().GetCommit() != 2 {
		t.Errorf("after a crash: last %d, written %d, hard state %v", after.Last(), after.Written(), after.HardState())
	}
}

func TestAppendReplacesTheRestOfTheLog(t *testing.T) {
	d := newDisk(t, vfs.NewCrashableMem())
	l := d.open(0)
	d.grow(l, 1, 1, 5, 0)
	d.grow(l, 2, 3, 4, 0)
	for name, l := range map[string]*Log{"open": l, "reopened": d.crashed().open(0)} { // order: each log is tested by itself
		if l.Last() != 4 || l.Written() != 4 || !equal(entryTerms(t, l), 1, 1, 2, 2) {
			t.Errorf("%s: last %d, written %d, terms %v", name, l.Last(), l.Written(), entryTerms(t, l))
		}
		if _, err := l.Term(5); !errors.Is(err, raft.ErrUnavailable) {
			t.Errorf("%s: a replaced entry: %v", name, err)
		}
	}
}

func TestTruncatedLogKeepsTheTermOfItsLastRemovedEntry(t *testing.T) {
	d := newDisk(t, vfs.NewCrashableMem())
	l := d.open(0)
	d.grow(l, 1, 1, 2, 0)
	d.grow(l, 3, 3, 5, 0)
	d.commit(true, func(b *pebble.Batch) {
		if err := l.Truncate(b, 3); err != nil {
			t.Fatal(err)
		}
	})
	for name, l := range map[string]*Log{"open": l, "reopened": d.crashed().open(3)} { // order: each log is tested by itself
		first, _ := l.FirstIndex()
		term, err := l.Term(3)
		if first != 4 || l.Truncated() != (Mark{3, 3}) || term != 3 || err != nil || !equal(entryTerms(t, l), 3, 3) {
			t.Errorf("%s: first %d, truncated %v, its term %d, %v", name, first, l.Truncated(), term, err)
		}
		if _, err := l.Term(2); !errors.Is(err, raft.ErrCompacted) {
			t.Errorf("%s: the term of a removed entry: %v", name, err)
		}
		if _, err := l.Entries(3, 5, math.MaxUint64); !errors.Is(err, raft.ErrCompacted) {
			t.Errorf("%s: a removed entry: %v", name, err)
		}
	}
	if err := l.Truncate(d.db.NewBatch(), 6); !errors.Is(err, raft.ErrUnavailable) {
		t.Errorf("truncated beyond the end: %v", err)
	}
}

// Each case damages a log of five entries of terms 1, 1, 2, 2 and 2, of which three are applied.
func TestInconsistentLogIsRefused(t *testing.T) {
	for name, c := range map[string]struct { // order: each case is tested by itself
		damage  func(*pebble.Batch)
		applied uint64
		want    string
	}{
		"a gap":                     {func(b *pebble.Batch) { record.Remove(b, record.LogKey(2)) }, 3, "continues with entry 3 after entry 1"},
		"the first entry missing":   {func(b *pebble.Batch) { record.Remove(b, record.LogKey(1)) }, 3, "continues with entry 2 after entry 0"},
		"a falling term":            {func(b *pebble.Batch) { record.Put(b, record.LogKey(4), entryOf(1, 4, nil)) }, 3, "entry 4 is of term 1 after one of term 2"},
		"an entry at another place": {func(b *pebble.Batch) { record.Put(b, record.LogKey(4), entryOf(2, 5, nil)) }, 3, "entry 4 calls itself 5"},
		"an unreadable entry":       {func(b *pebble.Batch) { _ = b.Set(record.LogKey(4), []byte{0xff}, nil) }, 3, "entry 4 cannot be read"},
		"a short key":               {func(b *pebble.Batch) { _ = b.Set([]byte{record.FamilyLog, 9}, nil, nil) }, 3, "has a wrong length"},
		"a state beyond its end":    {func(*pebble.Batch) {}, 6, "reaches from 0 to 5 (term 2) but the state is at 6"},
		"a state before its start": {func(b *pebble.Batch) {
			record.Put(b, record.KeyTruncated, &logpb.Applied{Index: 1, Term: 1})
			record.Remove(b, record.LogKey(1))
		}, 0, "reaches from 1 to 5 (term 2) but the state is at 0"},
		"an older hard state":      {func(b *pebble.Batch) { record.Put(b, record.KeyHardState, hardState(1, 3)) }, 3, "(term 1)"},
		"a commit beyond its end":  {func(b *pebble.Batch) { record.Put(b, record.KeyHardState, hardState(2, 6)) }, 3, "ends at 5 before its commit index 6"},
		"an unreadable hard state": {func(b *pebble.Batch) { _ = b.Set(record.KeyHardState, []byte{0xff}, nil) }, 3, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDisk(t, vfs.NewCrashableMem())
			l := d.open(0)
			d.grow(l, 1, 1, 2, 0)
			d.grow(l, 2, 3, 5, 3)
			if l, err := Open(d.db, 3, DefaultStep); err != nil || l.HardState().GetCommit() != 3 {
				t.Fatalf("without damage: hard state %v, %v", l.HardState(), err)
			}
			d.commit(true, c.damage)
			_, err := Open(d.db, c.applied, DefaultStep)
			if !errors.As(err, new(*record.DamagedError)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Applied entries beyond tailBytes leave memory. Reads then come from the database, with the same results.
func TestEntriesAreTheSameFromMemoryAndDisk(t *testing.T) {
	const size, count = tailBytes / 4, 12
	d := newDisk(t, vfs.NewCrashableMem())
	l := d.open(0)
	var entries []*raftpb.Entry
	for index := uint64(1); index <= count; index++ {
		entries = append(entries, entryOf(1, index, bytes.Repeat([]byte{byte(index)}, size)))
	}
	d.commit(true, func(b *pebble.Batch) { l.Append(b, entries, hardState(1, 0)) })
	l.Stable(entries, hardState(1, 0), count)
	if l.bytes > tailBytes || len(l.tail) == 0 || len(l.tail) == count {
		t.Fatalf("%d entries of %d bytes are in memory", len(l.tail), l.bytes)
	}
	inMemory := count - len(l.tail) + 1
	for _, lo := range []uint64{1, uint64(inMemory) - 1, uint64(inMemory)} {
		got, err := l.Entries(lo, lo+2, math.MaxUint64)
		if err != nil || len(got) != 2 {
			t.Fatalf("entries from %d: %d, %v", lo, len(got), err)
		}
		for i, e := range got {
			if e.GetIndex() != lo+uint64(i) || !bytes.Equal(e.GetData(), entries[int(lo)-1+i].GetData()) {
				t.Errorf("entry %d of those from %d is %d", i, lo, e.GetIndex())
			}
		}
		if got, err := l.Entries(lo, lo+2, 1); err != nil || len(got) != 1 || got[0].GetIndex() != lo {
			t.Errorf("entries from %d within one byte: %d, %v", lo, len(got), err)
		}
	}
	d.commit(true, func(b *pebble.Batch) { record.Remove(b, record.LogKey(1)) })
	if _, err := l.Term(1); !errors.As(err, new(*record.DamagedError)) {
		t.Errorf("an entry that is missing on the disk: %v", err)
	}
}

func TestLogOfTooManyStepsIsOversized(t *testing.T) {
	d := newDisk(t, vfs.NewCrashableMem())
	l, err := Open(d.db, 0, len("data")) // each entry makes a step
	if err != nil {
		t.Fatal(err)
	}
	d.grow(l, 1, 1, MaxSteps, 0)
	if index, ok := l.Oversized(MaxSteps); ok {
		t.Errorf("%d steps: to be truncated at %d", l.Steps(), index)
	}
	d.grow(l, 1, MaxSteps+1, MaxSteps+1, 0)
	const want = MaxSteps + 1 - keepSteps
	if _, ok := l.Oversized(want - 1); ok {
		t.Error("to be truncated at an entry that is not applied")
	}
	if index, ok := l.Oversized(want); !ok || index != want {
		t.Errorf("to be truncated at %d, %t; want %d", index, ok, want)
	}
	d.commit(true, func(b *pebble.Batch) {
		if err := l.Truncate(b, want); err != nil {
			t.Fatal(err)
		}
	})
	if _, ok := l.Oversized(MaxSteps + 1); ok || l.Steps() != keepSteps {
		t.Errorf("after the truncation there are %d steps", l.Steps())
	}
}

func TestSnapshotIsOfTheLastAppliedEntry(t *testing.T) {
	d := newDisk(t, vfs.NewCrashableMem())
	l := d.open(0)
	if _, err := l.Snapshot(); !errors.Is(err, raft.ErrSnapshotTemporarilyUnavailable) {
		t.Errorf("before anything is applied: %v", err)
	}
	applied := Mark{7, 2}
	l.Show(&applied)
	applied.Index = 8
	s, err := l.Snapshot()
	if err != nil || s.GetMetadata().GetIndex() != 8 || s.GetMetadata().GetTerm() != 2 {
		t.Errorf("snapshot %v, %v", s, err)
	}
}
