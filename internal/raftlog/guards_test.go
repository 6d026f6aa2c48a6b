package raftlog

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// logOf is a log in a database in memory.
type logOf struct {
	*Log
	t  *testing.T
	db *pebble.DB
}

func newLog(t *testing.T, step int) *logOf {
	t.Helper()
	db, err := pebble.Open("", &pebble.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	l := &logOf{t: t, db: db}
	if l.Log, err = Open(db, 0, step); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *logOf) commit(write func(*pebble.Batch)) {
	l.t.Helper()
	batch := l.db.NewBatch()
	write(batch)
	if err := batch.Commit(pebble.NoSync); err != nil {
		l.t.Fatal(err)
	}
}

// grow appends entries of a term, each with that many bytes, up to an index, and has them stable.
func (l *logOf) grow(to, term uint64, size int, applied uint64) {
	l.t.Helper()
	var entries []*raftpb.Entry
	for index := l.Last() + 1; index <= to; index++ {
		entries = append(entries, &raftpb.Entry{Index: &index, Term: &term, Data: make([]byte, size)})
	}
	hard := &raftpb.HardState{Term: &term, Vote: new(uint64(0)), Commit: &applied}
	l.commit(func(b *pebble.Batch) { l.Append(b, entries, hard) })
	l.Stable(entries, hard, applied)
}

func (l *logOf) truncate(index uint64) {
	l.t.Helper()
	l.commit(func(b *pebble.Batch) {
		if err := l.Truncate(b, index); err != nil {
			l.t.Fatal(err)
		}
	})
}

func isDamage(err error) bool {
	_, ok := errors.AsType[*record.DamagedError](err)
	return ok
}

// Raft asks for entries and terms that are gone or not there yet, and must learn which of the two.
func TestCompactedAndMissingEntriesDiffer(t *testing.T) {
	l := newLog(t, DefaultStep)
	l.grow(5, 1, 0, 5)
	l.grow(10, 2, 0, 5)
	l.truncate(3)
	for index, want := range map[uint64]error{2: raft.ErrCompacted, 3: nil, 4: nil, 10: nil, 11: raft.ErrUnavailable} {
		if _, err := l.Term(index); err != want {
			t.Errorf("the term of entry %d: %v", index, err)
		}
	}
	for _, c := range []struct {
		lo, hi uint64
		want   error
	}{{3, 5, raft.ErrCompacted}, {4, 11, nil}, {4, 12, raft.ErrUnavailable}} {
		if _, err := l.Entries(c.lo, c.hi, 1<<20); err != c.want {
			t.Errorf("entries %d to %d: %v", c.lo, c.hi, err)
		}
	}
	l.commit(func(b *pebble.Batch) {
		if err := l.Truncate(b, 11); err != raft.ErrUnavailable {
			t.Errorf("truncated up to an entry that is not there: %v", err)
		}
	})
	if term, _ := l.Term(5); term != 1 || l.Truncated() != (Mark{3, 1}) {
		t.Errorf("entry 5 is of term %d, truncated is %v", term, l.Truncated())
	}
}

// Entries come from memory and from the disk alike: those that were asked for, as many as fit, and at least one.
func TestEntriesFitIntoTheSizeThatIsAskedFor(t *testing.T) {
	const size = 100 << 10
	l := newLog(t, DefaultStep)
	l.grow(20, 1, size, 20)
	if start := l.last + 1 - uint64(len(l.tail)); start < 10 || start > 18 {
		t.Fatalf("memory begins with entry %d", start)
	}
	for _, c := range []struct {
		lo, hi, max uint64
		want        int
	}{{1, 5, 1 << 30, 4}, {1, 5, 0, 1}, {1, 5, 5 * size / 2, 2}, {18, 21, 1 << 30, 3}, {18, 21, 0, 1}, {18, 21, 5 * size / 2, 2}, {1, 21, 1 << 30, 20}} {
		entries, err := l.Entries(c.lo, c.hi, c.max)
		if err != nil || len(entries) != c.want || entries[0].GetIndex() != c.lo {
			t.Errorf("of entries %d to %d in %d bytes there are %d, %v", c.lo, c.hi, c.max, len(entries), err)
		}
	}
}

// Applied entries leave memory, oldest first. Those that are not applied stay, however large they are.
func TestOnlyAppliedEntriesLeaveMemory(t *testing.T) {
	l := newLog(t, DefaultStep)
	l.grow(20, 1, 100<<10, 4)
	if start := l.last + 1 - uint64(len(l.tail)); start != 5 {
		t.Errorf("memory begins with entry %d", start)
	}
	small := newLog(t, DefaultStep)
	small.grow(20, 1, 10, 20)
	if n := len(small.tail); n != 20 {
		t.Errorf("of 20 small entries %d are in memory", n)
	}
	large := newLog(t, DefaultStep)
	large.grow(1, 1, 2*tailBytes, 1)
	if n := len(large.tail); n != 0 {
		t.Errorf("of one entry that is too large %d are in memory", n)
	}
}

// A log that does not hang together, in itself or with the state beside it, is damage.
func TestInconsistentRecordsAreDamage(t *testing.T) {
	for what, c := range map[string]struct {
		spoil   func(l *logOf, b *pebble.Batch)
		applied uint64
	}{
		"nothing wrong":         {func(*logOf, *pebble.Batch) {}, 5},
		"a state behind it":     {func(*logOf, *pebble.Batch) {}, 11},
		"a state before it":     {func(*logOf, *pebble.Batch) {}, 2},
		"a hole":                {func(_ *logOf, b *pebble.Batch) { record.Remove(b, record.LogKey(7)) }, 5},
		"no first entry":        {func(_ *logOf, b *pebble.Batch) { record.Remove(b, record.LogKey(4)) }, 5},
		"a term that goes back": {func(_ *logOf, b *pebble.Batch) { putEntry(b, 7, 1) }, 5},
		"a hard state of an earlier term": {func(_ *logOf, b *pebble.Batch) {
			record.Put(b, record.KeyHardState, &raftpb.HardState{Term: new(uint64(1)), Commit: new(uint64(5))})
		}, 5},
		"a commit behind it": {func(_ *logOf, b *pebble.Batch) {
			record.Put(b, record.KeyHardState, &raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(11))})
		}, 5},
		"bytes that are no entry": {func(_ *logOf, b *pebble.Batch) {
			if err := b.Set(record.LogKey(6), []byte{0xff}, nil); err != nil {
				t.Fatal(err)
			}
		}, 5},
		"an entry in the place of another": {func(_ *logOf, b *pebble.Batch) {
			record.Put(b, record.LogKey(6), &raftpb.Entry{Index: new(uint64(9)), Term: new(uint64(2))})
		}, 5},
		"a key that is too long": {func(_ *logOf, b *pebble.Batch) {
			record.Put(b, append(record.LogKey(6), 0), &raftpb.Entry{Index: new(uint64(6)), Term: new(uint64(2))})
		}, 5},
	} {
		l := newLog(t, DefaultStep)
		l.grow(5, 1, 0, 5)
		l.grow(10, 2, 0, 5)
		l.truncate(3)
		l.commit(func(b *pebble.Batch) { c.spoil(l, b) })
		again, err := Open(l.db, c.applied, DefaultStep)
		if sound := what == "nothing wrong"; isDamage(err) == sound || (err == nil) != sound {
			t.Errorf("with %s: %v", what, err)
		} else if sound && (again.Last() != 10 || again.Written() != 10 || again.Truncated() != (Mark{3, 1})) {
			t.Errorf("the log reaches from %v to %d", again.Truncated(), again.Last())
		}
	}
}

func putEntry(b *pebble.Batch, index, term uint64) {
	record.Put(b, record.LogKey(index), &raftpb.Entry{Index: &index, Term: &term})
}

// An entry that is missing on the disk while the log is open is damage, and no shorter answer.
func TestMissingEntryIsDamage(t *testing.T) {
	l := newLog(t, DefaultStep)
	l.grow(20, 1, 100<<10, 20)
	l.commit(func(b *pebble.Batch) { record.Remove(b, record.LogKey(3)) })
	if entries, err := l.Entries(3, 5, 1<<30); !isDamage(err) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	if term, err := l.Term(3); !isDamage(err) {
		t.Errorf("term %d, %v", term, err)
	}
	l.commit(func(b *pebble.Batch) {
		if err := b.DeleteRange(record.LogKey(1), record.LogKey(21), nil); err != nil {
			t.Fatal(err)
		}
	})
	if entries, err := l.Entries(3, 5, 1<<30); !isDamage(err) {
		t.Errorf("of an empty log %d entries, %v", len(entries), err)
	}
}

// A disk that cannot be read is no damage of the log.
func TestReadErrorIsNoDamage(t *testing.T) {
	var failing atomic.Bool
	errDisk := errors.New("a disk that fails")
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpFileReadAt {
			return errDisk
		}
		return nil
	}))
	db, err := pebble.Open("", &pebble.Options{FS: files, CacheSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := &logOf{t: t, db: db}
	if l.Log, err = Open(db, 0, DefaultStep); err != nil {
		t.Fatal(err)
	}
	l.grow(20, 1, 100<<10, 20)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	failing.Store(true)
	if entries, err := l.Entries(1, 3, 1<<30); !errors.Is(err, errDisk) || isDamage(err) {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	failing.Store(false)
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// There is a state to be sent once something was applied.
func TestSnapshotNeedsSomethingApplied(t *testing.T) {
	l := newLog(t, DefaultStep)
	if _, err := l.Snapshot(); err != raft.ErrSnapshotTemporarilyUnavailable {
		t.Errorf("before the log knows what is applied: %v", err)
	}
	applied := Mark{}
	l.Show(&applied)
	if _, err := l.Snapshot(); err != raft.ErrSnapshotTemporarilyUnavailable {
		t.Errorf("with nothing applied: %v", err)
	}
	applied = Mark{7, 2}
	if s, err := l.Snapshot(); err != nil || s.GetMetadata().GetIndex() != 7 || s.GetMetadata().GetTerm() != 2 {
		t.Errorf("%v, %v", s, err)
	}
}

// Entries that replace others take their places on the disk and in memory, and leave nothing behind them.
func TestReplacedEntriesAreGone(t *testing.T) {
	l := newLog(t, 100)
	l.grow(10, 1, 30, 0)
	steps := l.Steps()
	l.commit(func(b *pebble.Batch) {
		entries := []*raftpb.Entry{{Index: new(uint64(4)), Term: new(uint64(2))}}
		hard := &raftpb.HardState{Term: new(uint64(2)), Commit: new(uint64(0))}
		l.Append(b, entries, hard)
		l.Stable(entries, hard, 0)
	})
	again, err := Open(l.db, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, log := range []*Log{l.Log, again} {
		if term, err := log.Term(4); err != nil || term != 2 || log.Last() != 4 || len(log.tail) != 4 || log.Steps() >= steps {
			t.Errorf("entry 4 is of term %d, %v; the log ends at %d, with %d entries in memory and %d steps", term, err, log.Last(), len(log.tail), log.Steps())
		}
	}
	if bytes := 3*(30+160) + 160; l.bytes != bytes {
		t.Errorf("memory counts %d bytes, and not %d", l.bytes, bytes)
	}
}

// A log of large entries is truncated before it has many, at an entry that is applied.
func TestOversizedLogIsTruncatedWhereItIsApplied(t *testing.T) {
	l := newLog(t, 100)
	l.grow(MaxSteps, 1, 100, 0)
	if index, ok := l.Oversized(1 << 20); ok {
		t.Errorf("with %d steps it may be truncated at %d", l.Steps(), index)
	}
	l.grow(MaxSteps+1, 1, 100, 0)
	index, ok := l.Oversized(1 << 20)
	if !ok || index != MaxSteps+1-keepSteps {
		t.Errorf("with %d steps it may be truncated at %d, %v", l.Steps(), index, ok)
	}
	if _, ok := l.Oversized(index - 1); ok {
		t.Error("it may be truncated at an entry that is not applied")
	}
	l.truncate(index)
	if l.Steps() != keepSteps {
		t.Errorf("truncated, it has %d steps", l.Steps())
	}
}
