package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// tailBytes bounds the entries kept in memory beyond those that are not yet applied. They are small objects
// among the garbage of requests, whose room the collector cannot give back, so they cost more than this.
const tailBytes = 512 << 10

// A log of large entries takes much space long before it has many entries. It is measured in steps: when
// it has more than maxSteps of them, the oldest go but for keepSteps.
const (
	logStep   = 16 << 20 // bytes in a step
	maxSteps  = 8
	keepSteps = 4
)

// A mark names one entry of the log.
type mark struct{ index, term uint64 }

// log is raft's view of the stable part of the log. It is owned by the Replica and changes only when a
// write was reported as persisted, so raft never sees an entry that a crash could take back.
type log struct {
	db   *pebble.DB
	hard *raftpb.HardState
	conf *raftpb.ConfState
	// applied is how far the state beside it has come: the Replica's own mark.
	applied *mark

	truncated mark   // the last entry that was removed; its term is kept for matching
	last      uint64 // ≥ truncated.index; the last stable entry
	written   uint64 // ≥ last; the last entry handed to the disk
	// tail holds the newest entries: tail[i].Index == last-len(tail)+1+i.
	tail  []*raftpb.Entry
	bytes int // that tail takes, by entryBytes

	// steps are the entries, by index and ascending, up to which the log grew by another step bytes; all are
	// above truncated.index. past is how many bytes there are since the last of them, roughly after a cut.
	step  int
	steps []uint64
	past  int
}

var _ raft.Storage = (*log)(nil)

// openLog reads what the log is, and checks that it hangs together.
func openLog(db *pebble.DB, applied uint64, step int) (*log, error) {
	l := &log{db: db, step: step, hard: new(raftpb.HardState), conf: new(raftpb.ConfState)}
	truncated := new(logpb.Applied)
	for _, own := range []struct {
		key []byte
		m   proto.Message
	}{{record.KeyHardState, l.hard}, {record.KeyConfState, l.conf}, {record.KeyTruncated, truncated}} {
		if _, err := record.Load(db, own.key, own.m); err != nil {
			return nil, err
		}
	}
	l.truncated = mark{truncated.Index, truncated.Term}
	l.last = l.truncated.index
	lastTerm := l.truncated.term
	var gap error
	err := readEntries(db, 0, func(e *raftpb.Entry) bool {
		switch {
		case e.GetIndex() != l.last+1:
			gap = &record.DamagedError{What: fmt.Sprintf("the log continues with entry %d after entry %d", e.GetIndex(), l.last)}
		case e.GetTerm() < lastTerm:
			gap = &record.DamagedError{What: fmt.Sprintf("log entry %d is of term %d after one of term %d", e.GetIndex(), e.GetTerm(), lastTerm)}
		}
		l.last, lastTerm = e.GetIndex(), e.GetTerm()
		l.measure(e)
		l.remember(e)
		l.forget(applied)
		return gap == nil
	})
	if err == nil {
		err = gap
	}
	if err != nil {
		return nil, err
	}
	l.written = l.last
	if applied > l.last || applied < l.truncated.index || l.hard.GetTerm() < lastTerm {
		return nil, &record.DamagedError{What: fmt.Sprintf("the log reaches from %d to %d (term %d) but the state is at %d (term %d)",
			l.truncated.index, l.last, lastTerm, applied, l.hard.GetTerm())}
	}
	// The commit index is not synced by itself. What was applied had been committed.
	l.hard.Commit = new(max(l.hard.GetCommit(), applied))
	if l.hard.GetCommit() > l.last {
		return nil, &record.DamagedError{What: fmt.Sprintf("the log ends at %d before its commit index %d", l.last, l.hard.GetCommit())}
	}
	return l, nil
}

// append writes entries and hard state into a batch; entries replace what stood at their indexes.
func (l *log) append(b *pebble.Batch, entries []*raftpb.Entry, hard *raftpb.HardState) {
	if len(entries) > 0 {
		first := entries[0].GetIndex()
		if first <= l.written {
			if err := b.DeleteRange(record.LogKey(first), record.LogEnd, nil); err != nil {
				panic(fmt.Sprintf("replica: cannot cut the log at %d: %v", first, err))
			}
		}
		for _, e := range entries {
			record.Put(b, record.LogKey(e.GetIndex()), e)
		}
		l.written = entries[len(entries)-1].GetIndex()
	}
	if hard != nil {
		record.Put(b, record.KeyHardState, hard)
	}
}

// stable takes note that entries and hard state are on stable storage.
func (l *log) stable(entries []*raftpb.Entry, hard *raftpb.HardState, applied uint64) {
	if hard != nil {
		l.hard = hard
	}
	if len(entries) == 0 {
		return
	}
	if first := entries[0].GetIndex(); first <= l.last {
		l.cut(first)
	}
	for _, e := range entries {
		l.last = e.GetIndex()
		l.measure(e)
		l.remember(e)
	}
	l.forget(applied)
}

func (l *log) measure(e *raftpb.Entry) {
	if l.past += len(e.GetData()); l.past >= l.step {
		l.steps, l.past = append(l.steps, e.GetIndex()), 0
	}
}

// oversized returns up to where the log may be truncated because it takes too much space.
func (l *log) oversized(applied uint64) (index uint64, ok bool) {
	if len(l.steps) <= maxSteps {
		return 0, false
	}
	index = l.steps[len(l.steps)-1-keepSteps]
	return index, index <= applied
}

// cut drops the entries from first on from memory.
func (l *log) cut(first uint64) {
	start := l.last + 1 - uint64(len(l.tail))
	keep := 0
	if first > start {
		keep = int(first - start)
	}
	for _, e := range l.tail[keep:] {
		l.bytes -= entryBytes(e)
	}
	l.tail = l.tail[:keep:keep]
	l.last = first - 1
	l.steps = slices.DeleteFunc(l.steps, func(index uint64) bool { return index >= first })
}

// entryBytes is roughly the memory that an entry takes: its data, and the message around it.
func entryBytes(e *raftpb.Entry) int { return len(e.GetData()) + 160 }

func (l *log) remember(e *raftpb.Entry) {
	l.tail = append(l.tail, e)
	l.bytes += entryBytes(e)
}

// forget keeps the tail short: applied entries leave memory, oldest first, while it is over its bound.
func (l *log) forget(applied uint64) {
	drop := 0
	for l.bytes > tailBytes && drop < len(l.tail) && l.tail[drop].GetIndex() <= applied {
		l.bytes -= entryBytes(l.tail[drop])
		drop++
	}
	clear(l.tail[:drop]) // the array lives on until remember needs a larger one, and copies what is left
	l.tail = l.tail[drop:]
}

// truncate removes the entries up to index, in a batch that also holds the state that replaces them.
func (l *log) truncate(b *pebble.Batch, index uint64) error {
	term, err := l.Term(index)
	if err != nil {
		return err
	}
	if err := b.DeleteRange(record.LogKey(0), record.LogKey(index+1), nil); err != nil {
		return err
	}
	l.truncated = mark{index, term}
	l.steps = slices.DeleteFunc(l.steps, func(step uint64) bool { return step <= index })
	record.Put(b, record.KeyTruncated, &logpb.Applied{Index: index, Term: term})
	return nil
}

// InitialState is part of raft.Storage, as are the methods below.
func (l *log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, raftpb.EnsureConfState(l.conf), nil
}

// FirstIndex returns the index of the first entry that is still there.
func (l *log) FirstIndex() (uint64, error) { return l.truncated.index + 1, nil }

// LastIndex returns the index of the last stable entry.
func (l *log) LastIndex() (uint64, error) { return l.last, nil }

// Term returns the term of an entry, or of the last one that was removed.
func (l *log) Term(index uint64) (uint64, error) {
	switch start := l.last + 1 - uint64(len(l.tail)); {
	case index == l.truncated.index:
		return l.truncated.term, nil
	case index < l.truncated.index:
		return 0, raft.ErrCompacted
	case index > l.last:
		return 0, raft.ErrUnavailable
	case index >= start:
		return l.tail[index-start].GetTerm(), nil
	}
	entries, err := l.fromDisk(index, index+1, 0)
	if err != nil {
		return 0, err
	}
	return entries[0].GetTerm(), nil
}

// Entries returns entries [lo, hi), at least one, and as many as fit into maxSize.
func (l *log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo <= l.truncated.index {
		return nil, raft.ErrCompacted
	}
	if hi > l.last+1 {
		return nil, raft.ErrUnavailable
	}
	start := l.last + 1 - uint64(len(l.tail))
	if lo < start {
		return l.fromDisk(lo, hi, maxSize)
	}
	var size uint64
	var entries []*raftpb.Entry
	for _, e := range l.tail[lo-start : hi-start] {
		size += uint64(proto.Size(e))
		if len(entries) > 0 && size > maxSize {
			break
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (l *log) fromDisk(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	var size uint64
	var entries []*raftpb.Entry
	err := readEntries(l.db, lo, func(e *raftpb.Entry) bool {
		size += uint64(proto.Size(e))
		if e.GetIndex() >= hi || len(entries) > 0 && size > maxSize {
			return false
		}
		entries = append(entries, e)
		return true
	})
	if err == nil && (len(entries) == 0 || entries[0].GetIndex() != lo) {
		err = &record.DamagedError{What: fmt.Sprintf("log entry %d is missing", lo)}
	}
	return entries, err
}

// readEntries calls yield with the entries of the log from index lo on, in order, until it returns false.
func readEntries(db pebble.Reader, lo uint64, yield func(*raftpb.Entry) bool) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: record.LogKey(lo), UpperBound: []byte{record.FamilyLog + 1}})
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		entry, err := readEntry(it.Key(), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !yield(entry) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

func readEntry(key, value []byte) (*raftpb.Entry, error) {
	if len(key) != 9 {
		return nil, &record.DamagedError{What: fmt.Sprintf("log key %x has a wrong length", key)}
	}
	index := binary.BigEndian.Uint64(key[1:])
	entry := new(raftpb.Entry)
	if err := proto.Unmarshal(value, entry); err != nil {
		return nil, &record.DamagedError{What: fmt.Sprintf("log entry %d cannot be read", index), Err: err}
	}
	if entry.GetIndex() != index {
		return nil, &record.DamagedError{What: fmt.Sprintf("log entry %d calls itself %d", index, entry.GetIndex())}
	}
	return entry, nil
}
