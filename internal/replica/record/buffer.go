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
	// MaxBuffered and maxLoggedBytes are from when on a buffer is full. A flush then takes a millisecond or two, in
	// which nothing else happens.
	MaxBuffered    = 1 << 12
	maxLoggedBytes = 1 << 20
)

// A Buffer is a write-behind buffer of records.
//
// Most names are held for a moment, again and again: their records, and those of their holders' leases, are soon
// rewritten or deleted. Writing each to its key at once would be more work than all that is decided about it. So the
// newest of each stays in memory, and every batch stores those that changed one after the other in a single record.
// Flush writes what is left of them to their own keys. Members flush at different times, so a buffer is never part of
// what one member sends to another.
type Buffer struct {
	of      map[string]*buffered
	changed []*buffered // in order, each once
	last    uint64      // number of the newest record that [Buffer.Log] wrote
	bytes   int         // of those records
	spare   []*buffered
	scratch []byte
}

// buffered is a record whose newest form may not be at its key yet.
type buffered struct {
	key     string
	value   []byte
	deleted bool
	below   bool // the database may have something at its key
	logged  bool // Log has written it, in this form or another
	changed bool // since then
}

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer { return &Buffer{of: make(map[string]*buffered)} }

// Len is the number of records in the buffer.
func (b *Buffer) Len() int { return len(b.of) }

// Has reports whether the buffer has the record under key, or knows that it is deleted.
func (b *Buffer) Has(key []byte) bool { return b.of[string(key)] != nil }

// touch returns the record under key, which is about to change.
func (b *Buffer) touch(key []byte, below bool) *buffered {
	of := b.of[string(key)]
	if of == nil {
		if n := len(b.spare); n > 0 {
			of, b.spare = b.spare[n-1], b.spare[:n-1]
			*of = buffered{value: of.value[:0]}
		} else {
			of = new(buffered)
		}
		of.key, of.below = string(key), below
		b.of[of.key] = of
	}
	if !of.changed {
		of.changed = true
		b.changed = append(b.changed, of)
	}
	return of
}

// Put takes a record. below says whether the database may have something at its key.
func (b *Buffer) Put(key []byte, m proto.Message, below bool) {
	of := b.touch(key, below)
	of.value, of.deleted = appendMessage(of.value[:0], m), false
}

// Delete deletes a record if the buffer has it. If it does not, Delete returns false, and the caller deletes the record
// in the database.
func (b *Buffer) Delete(key []byte) bool {
	if !b.Has(key) {
		return false
	}
	of := b.touch(key, true)
	of.value, of.deleted = of.value[:0], true
	return true
}

// Load reads the record under key into m, and reports whether there is one. If the buffer does not have the key, Load
// reads nothing, and the caller reads the database.
func (b *Buffer) Load(key []byte, m proto.Message) (found bool, err error) {
	of := b.of[string(key)]
	if of == nil || of.deleted {
		return false, nil
	}
	if err := proto.Unmarshal(of.value, m); err != nil {
		return false, &DamagedError{What: fmt.Sprintf("record %q cannot be read", string(key)), Err: err}
	}
	return true, nil
}

// Log writes what changed since it was called last into a batch, so that it survives with the batch.
func (b *Buffer) Log(batch *pebble.Batch) {
	if len(b.changed) == 0 {
		return
	}
	text := b.scratch[:0]
	for _, of := range b.changed {
		of.changed = false
		if of.deleted && !of.below && !of.logged {
			delete(b.of, of.key)
			b.free(of)
			continue // it is in no batch
		}
		of.logged = true
		text = appendBuffered(text, of)
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

// Full reports whether it is time for a Flush.
func (b *Buffer) Full() bool { return b.bytes > maxLoggedBytes || len(b.of) > MaxBuffered }

// Flush writes all records to their own keys, and empties the buffer. The caller calls it between two batches.
func (b *Buffer) Flush(db *pebble.DB) error {
	if len(b.of) == 0 {
		return nil
	}
	batch := db.NewBatch()
	b.WriteTo(batch)
	b.clear()
	return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
}

// WriteTo writes all records to their own keys in a batch, in order of keys, which is easiest for the database.
func (b *Buffer) WriteTo(batch *pebble.Batch) {
	all := make([]*buffered, 0, len(b.of))
	for _, of := range b.of { // order: sorted below
		if !of.deleted || of.below {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b *buffered) int { return strings.Compare(a.key, b.key) })
	for _, of := range all {
		write(batch, []byte(of.key), of.value, of.deleted)
	}
	deleteLogged(batch)
}

func (b *Buffer) clear() {
	for _, of := range b.of { // order: their memory is all the same
		b.free(of)
	}
	clear(b.of)
	b.bytes = 0
}

// free keeps the memory of a record for another one, unless it is much.
func (b *Buffer) free(of *buffered) {
	if cap(of.value) <= 1<<10 && len(b.spare) < MaxBuffered {
		b.spare = append(b.spare, of)
	}
}

// FlushLogged writes the records that a buffer of the last run logged to their own keys.
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

// writeLogged writes the records that one call of Log wrote under the key at.
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

// What a logged record begins with. Key and value follow, with their lengths in front.
const (
	loggedPut = iota
	loggedDelete
)

func appendBuffered(text []byte, of *buffered) []byte {
	kind := byte(loggedPut)
	if of.deleted {
		kind = loggedDelete
	}
	text = binary.AppendUvarint(append(text, kind), uint64(len(of.key)))
	text = append(text, of.key...)
	text = binary.AppendUvarint(text, uint64(len(of.value)))
	return append(text, of.value...)
}

// buffers reports whether records of a family can be in a buffer.
func buffers(f byte) bool { return f == FamilyLease || f == FamilyName || f == FamilyPast }
