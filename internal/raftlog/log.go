package raftlog

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

// tailBytes bounds the memory of applied entries. Entries are small objects among the garbage of requests, and the
// garbage collector cannot free the memory between them, so they cost more than their size.
const tailBytes = 512 << 10

// A log of large entries takes much space before it has many entries. So its size is measured in steps of bytes: when
// it has more than MaxSteps, it may be truncated to keepSteps.
const (
	DefaultStep = 16 << 20 // bytes of a step
	MaxSteps    = 8
	keepSteps   = 4
)

// A Mark is the index and term of one log entry.
type Mark struct{ Index, Term uint64 }

// A Log is the stable part of the Raft log, as raft sees it. One member uses it. It changes only when a write was
// reported as persisted, so raft never sees an entry that a crash could remove.
type Log struct {
	db   *pebble.DB
	hard *raftpb.HardState
	conf *raftpb.ConfState
	// applied is the last applied entry. The member updates it; nil until Show.
	applied *Mark

	truncated Mark   // the last removed entry; raft still needs its term
	last      uint64 // index of the last stable entry; ≥ truncated.Index
	written   uint64 // index of the last entry written to a batch; ≥ last
	// tail holds the newest stable entries: tail[i].Index == last-len(tail)+1+i.
	tail  []*raftpb.Entry
	bytes int // memory of tail, by entryBytes

	// steps are the indexes, ascending and above truncated.Index, at which the log had grown by another step bytes.
	// past is the number of bytes after the last of them; after a cut it is approximate.
	step  int
	steps []uint64
	past  int
}

var _ raft.Storage = (*Log)(nil)

// Open loads the log from a database and checks that it is consistent. applied is the index of the last entry that
// the member's state contains.
func Open(db *pebble.DB, applied uint64, step int) (*Log, error) {
	l := &Log{db: db, step: step, hard: new(raftpb.HardState), conf: new(raftpb.ConfState)}
	truncated := new(logpb.Applied)
	for _, own := range []struct {
		key []byte
		m   proto.Message
	}{{record.KeyHardState, l.hard}, {record.KeyConfState, l.conf}, {record.KeyTruncated, truncated}} {
		if _, err := record.Load(db, own.key, own.m); err != nil {
			return nil, err
		}
	}
	l.truncated = Mark{truncated.Index, truncated.Term}
	l.last = l.truncated.Index
	lastTerm := l.truncated.Term
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
	if applied > l.last || applied < l.truncated.Index || l.hard.GetTerm() < lastTerm {
		return nil, &record.DamagedError{What: fmt.Sprintf("the log reaches from %d to %d (term %d) but the state is at %d (term %d)",
			l.truncated.Index, l.last, lastTerm, applied, l.hard.GetTerm())}
	}
	// The commit index is not synced on its own. Applied entries had been committed.
	l.hard.Commit = new(max(l.hard.GetCommit(), applied))
	if l.hard.GetCommit() > l.last {
		return nil, &record.DamagedError{What: fmt.Sprintf("the log ends at %d before its commit index %d", l.last, l.hard.GetCommit())}
	}
	return l, nil
}

// Show sets the mark of the last applied entry, which Snapshot returns. The member updates the mark in place.
func (l *Log) Show(applied *Mark) { l.applied = applied }

// HardState returns the stable hard state.
func (l *Log) HardState() *raftpb.HardState { return l.hard }

// ConfState returns the cluster's members as of the database.
func (l *Log) ConfState() *raftpb.ConfState { return l.conf }

// SetConfState replaces the members, in a batch that also contains the state in which they are the members.
func (l *Log) SetConfState(b *pebble.Batch, conf *raftpb.ConfState) {
	l.conf = conf
	record.Put(b, record.KeyConfState, conf)
}

// Truncated returns the last removed entry.
func (l *Log) Truncated() Mark { return l.truncated }

// Last returns the index of the last stable entry.
func (l *Log) Last() uint64 { return l.last }

// Written returns the index of the last entry written to a batch.
func (l *Log) Written() uint64 { return l.written }

// Steps returns the number of steps of bytes in the log.
func (l *Log) Steps() int { return len(l.steps) }

// Past returns the number of bytes after the last step.
func (l *Log) Past() int { return l.past }

// Append writes entries and the hard state into a batch. The entries replace all existing ones from the first index
// on.
func (l *Log) Append(b *pebble.Batch, entries []*raftpb.Entry, hard *raftpb.HardState) {
	if len(entries) > 0 {
		first := entries[0].GetIndex()
		if first <= l.written {
			if err := b.DeleteRange(record.LogKey(first), record.LogEnd, nil); err != nil {
				panic(fmt.Sprintf("raftlog: cannot cut the log at %d: %v", first, err))
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

// Stable records that entries and the hard state are on stable storage. applied is the index of the last applied
// entry.
func (l *Log) Stable(entries []*raftpb.Entry, hard *raftpb.HardState, applied uint64) {
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

func (l *Log) measure(e *raftpb.Entry) {
	if l.past += len(e.GetData()); l.past >= l.step {
		l.steps, l.past = append(l.steps, e.GetIndex()), 0
	}
}

// Oversized returns the index up to which the log should be truncated because of its size. ok is false if it is small
// enough, or if that entry is not applied yet.
func (l *Log) Oversized(applied uint64) (index uint64, ok bool) {
	if len(l.steps) <= MaxSteps {
		return 0, false
	}
	index = l.steps[len(l.steps)-1-keepSteps]
	return index, index <= applied
}

// cut removes the entries from index first on from memory.
func (l *Log) cut(first uint64) {
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

// entryBytes is roughly the memory of an entry: its data and the message around it.
func entryBytes(e *raftpb.Entry) int { return len(e.GetData()) + 160 }

func (l *Log) remember(e *raftpb.Entry) {
	l.tail = append(l.tail, e)
	l.bytes += entryBytes(e)
}

// forget removes the oldest applied entries from memory while tail exceeds its bound.
func (l *Log) forget(applied uint64) {
	drop := 0
	for l.bytes > tailBytes && drop < len(l.tail) && l.tail[drop].GetIndex() <= applied {
		l.bytes -= entryBytes(l.tail[drop])
		drop++
	}
	clear(l.tail[:drop]) // the array lives on until remember reallocates it
	l.tail = l.tail[drop:]
}

// Truncate removes the entries up to index, in a batch that also contains the state that replaces them.
func (l *Log) Truncate(b *pebble.Batch, index uint64) error {
	term, err := l.Term(index)
	if err != nil {
		return err
	}
	if err := b.DeleteRange(record.LogKey(0), record.LogKey(index+1), nil); err != nil {
		return err
	}
	l.truncated = Mark{index, term}
	l.steps = slices.DeleteFunc(l.steps, func(step uint64) bool { return step <= index })
	record.Put(b, record.KeyTruncated, &logpb.Applied{Index: index, Term: term})
	return nil
}

// InitialState returns the hard state and the members. Like the methods below it is part of raft.Storage.
func (l *Log) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, raftpb.EnsureConfState(l.conf), nil
}

// FirstIndex returns the index of the first entry that is not truncated.
func (l *Log) FirstIndex() (uint64, error) { return l.truncated.Index + 1, nil }

// LastIndex returns the index of the last stable entry.
func (l *Log) LastIndex() (uint64, error) { return l.last, nil }

// Term returns the term of an entry, or of the last removed one.
func (l *Log) Term(index uint64) (uint64, error) {
	switch start := l.last + 1 - uint64(len(l.tail)); {
	case index == l.truncated.Index:
		return l.truncated.Term, nil
	case index < l.truncated.Index:
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

// Entries returns the entries [lo, hi) as far as they fit into maxSize bytes, but at least one.
func (l *Log) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo <= l.truncated.Index {
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

func (l *Log) fromDisk(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
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

// readEntries calls yield with the log's entries from index lo on, in order, until yield returns false.
func readEntries(db pebble.Reader, lo uint64, yield func(*raftpb.Entry) bool) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: record.LogKey(lo), UpperBound: []byte{record.FamilyLog + 1}})
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		entry, err := Entry(it.Key(), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !yield(entry) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// Entry decodes a log entry and checks it against its database key.
func Entry(key, value []byte) (*raftpb.Entry, error) {
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

// Snapshot returns the metadata of a snapshot at the last applied entry. It is part of raft.Storage.
func (l *Log) Snapshot() (*raftpb.Snapshot, error) {
	if l.applied == nil || l.applied.Index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(l.applied.Index), Term: new(l.applied.Term), ConfState: raftpb.EnsureConfState(l.conf),
	}}, nil
}
