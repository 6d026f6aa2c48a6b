package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"
)

const (
	// MaxBuffered and maxLoggedBytes are the limits above which a buffer is full. A flush takes a millisecond or
	// two, in which the member does nothing else.
	MaxBuffered    = 1 << 12
	maxLoggedBytes = 1 << 20
)

// A Buffer is a write-behind buffer of records.
//
// Most names are held for a short time, again and again. Their records, and those of their holders' leases, are soon
// rewritten or deleted. Writing each of them to its own key at once would cost more than all other work on a claim.
//
// So the newest version of each record stays in memory, and every batch stores the changed ones together in a single
// record. Flush writes the remaining ones to their own keys. Members flush at different times, so a buffer is never
// part of a state that one member sends to another.
type Buffer struct {
	records map[string]*buffered // by key
	changed []*buffered          // records changed since the last Log, in order, each once
	last    uint64               // number of the newest record that Log wrote
	bytes   int                  // size of the records that Log wrote since the last Flush
	spare   []*buffered          // for reuse
	scratch []byte
}

// buffered is a record whose newest version may not be at its key yet.
type buffered struct {
	key     string
	value   []byte
	deleted bool
	below   bool // the database may contain a record at its key
	logged  bool // Log has written a version of it
	changed bool // it changed since the last Log
}

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer { return &Buffer{records: make(map[string]*buffered)} }

// Len is the number of records in the buffer.
func (b *Buffer) Len() int { return len(b.records) }

// Has reports whether the buffer has the record under key, or knows that it is deleted.
func (b *Buffer) Has(key []byte) bool { return b.records[string(key)] != nil }

// touch returns the record under key and marks it as changed. It adds the record if necessary.
func (b *Buffer) touch(key []byte, below bool) *buffered {
	rec := b.records[string(key)]
	if rec == nil {
		if n := len(b.spare); n > 0 {
			rec, b.spare = b.spare[n-1], b.spare[:n-1]
			*rec = buffered{value: rec.value[:0]}
		} else {
			rec = new(buffered)
		}
		rec.key, rec.below = string(key), below
		b.records[rec.key] = rec
	}
	if !rec.changed {
		rec.changed = true
		b.changed = append(b.changed, rec)
	}
	return rec
}

// Put sets a record. below tells the buffer whether the database may contain a record at its key.
func (b *Buffer) Put(key []byte, m proto.Message, below bool) {
	rec := b.touch(key, below)
	rec.value, rec.deleted = appendMessage(rec.value[:0], m), false
}

// Delete deletes a record that is in the buffer. Otherwise it returns false, and the caller must delete the record in
// the database.
func (b *Buffer) Delete(key []byte) bool {
	if !b.Has(key) {
		return false
	}
	rec := b.touch(key, true)
	rec.value, rec.deleted = rec.value[:0], true
	return true
}

// Load decodes the buffered record under key into m, and reports whether it exists. If Has reports false for the key,
// the caller must read the database instead.
func (b *Buffer) Load(key []byte, m proto.Message) (found bool, err error) {
	rec := b.records[string(key)]
	if rec == nil || rec.deleted {
		return false, nil
	}
	if err := proto.Unmarshal(rec.value, m); err != nil {
		return false, &DamagedError{What: fmt.Sprintf("record %q cannot be read", string(key)), Err: err}
	}
	return true, nil
}

// Log writes the records that changed since its last call into a batch, so that they become durable with the batch.
func (b *Buffer) Log(batch *pebble.Batch) {
	if len(b.changed) == 0 {
		return
	}
	text := b.scratch[:0]
	for _, rec := range b.changed {
		rec.changed = false
		if rec.deleted && !rec.below && !rec.logged {
			delete(b.records, rec.key)
			b.free(rec)
			continue // no batch contains it, so there is nothing to delete
		}
		rec.logged = true
		text = appendBuffered(text, rec)
	}
	b.changed, b.scratch = b.changed[:0], text
	if len(text) == 0 {
		return
	}
	b.last, b.bytes = b.last+1, b.bytes+len(text)
	if err := batch.Set(numbered(FamilyBuffer, b.last), text, nil); err != nil {
		panic(fmt.Sprintf("record: cannot write the buffer: %v", err))
	}
}

// Full reports whether the caller should call Flush.
func (b *Buffer) Full() bool { return b.bytes > maxLoggedBytes || len(b.records) > MaxBuffered }

// Flush writes all records to their own keys, and empties the buffer. The caller calls it between two batches.
func (b *Buffer) Flush(db *pebble.DB) error {
	if len(b.records) == 0 {
		return nil
	}
	batch := db.NewBatch()
	b.WriteTo(batch)
	b.clear()
	return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
}

// WriteTo writes all records to their own keys in a batch, in order of keys, which costs the database least.
func (b *Buffer) WriteTo(batch *pebble.Batch) {
	all := make([]*buffered, 0, len(b.records))
	for _, rec := range b.records { // order: sorted below
		if !rec.deleted || rec.below {
			all = append(all, rec)
		}
	}
	slices.SortFunc(all, func(a, b *buffered) int { return strings.Compare(a.key, b.key) })
	for _, rec := range all {
		write(batch, []byte(rec.key), rec.value, rec.deleted)
	}
	deleteLogged(batch)
}

func (b *Buffer) clear() {
	for _, rec := range b.records { // order: only their memory is kept
		b.free(rec)
	}
	clear(b.records)
	b.bytes = 0
}

// free keeps a record's memory for reuse, unless it is large.
func (b *Buffer) free(rec *buffered) {
	if cap(rec.value) <= 1<<10 && len(b.spare) < MaxBuffered {
		b.spare = append(b.spare, rec)
	}
}

// FlushLogged writes the records that a buffer logged before a restart to their own keys.
func FlushLogged(db *pebble.DB) error {
	it, err := db.NewIter(Family(FamilyBuffer))
	if err != nil {
		return err
	}
	batch := db.NewBatch()
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		var text []byte
		if text, err = it.ValueAndErr(); err == nil {
			err = writeLogged(batch, it.Key(), text)
		}
	}
	if err = errors.Join(err, it.Error(), it.Close()); err == nil && !batch.Empty() {
		deleteLogged(batch)
		err = batch.Commit(pebble.NoSync)
	}
	return errors.Join(err, batch.Close())
}

// writeLogged writes the records that one call of Log stored under the key at.
func writeLogged(batch *pebble.Batch, at, text []byte) error {
	for len(text) > 0 {
		deleted := text[0] == loggedDelete
		key, rest, ok := CutBytes(text[1:])
		value, rest, ok2 := CutBytes(rest)
		if text[0] > loggedDelete || !ok || !ok2 || len(key) == 0 || !buffers(key[0]) {
			return &DamagedError{What: fmt.Sprintf("buffered records %x cannot be read", at)}
		}
		write(batch, key, value, deleted)
		text = rest
	}
	return nil
}

func write(batch *pebble.Batch, key, value []byte, deleted bool) {
	if deleted {
		Remove(batch, key)
		return
	}
	if err := batch.Set(key, value, nil); err != nil {
		panic(fmt.Sprintf("record: cannot write %q: %v", string(key), err))
	}
}

func deleteLogged(batch *pebble.Batch) {
	if err := batch.DeleteRange([]byte{FamilyBuffer}, []byte{FamilyBuffer + 1}, nil); err != nil {
		panic(fmt.Sprintf("record: cannot remove the buffer: %v", err))
	}
}

// The first byte of a logged record. The key and the value follow, each with its length in front.
const (
	loggedPut = iota
	loggedDelete
)

func appendBuffered(text []byte, rec *buffered) []byte {
	kind := byte(loggedPut)
	if rec.deleted {
		kind = loggedDelete
	}
	text = binary.AppendUvarint(append(text, kind), uint64(len(rec.key)))
	text = append(text, rec.key...)
	text = binary.AppendUvarint(text, uint64(len(rec.value)))
	return append(text, rec.value...)
}

// buffers reports whether a buffer can hold records of a family.
func buffers(f byte) bool { return f == FamilyLease || f == FamilyName || f == FamilyPast }
