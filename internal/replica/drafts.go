package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// Most names are held for a moment, again and again: what is written down of them, and of the leases of those who
// hold them, is soon rewritten or removed. To put each such record in its place at once is more work than all that
// is decided about it. So they are drafts at first: the newest of each is in memory, and on the disk those that a
// batch wrote stand one after the other in one record. When there are many drafts they are filed: what is left of them
// goes where it belongs. Members file at different times, so the drafts of one are nobody else's business.

const (
	// maxDrafts and maxDraftBytes are from when on drafts are filed: a millisecond or two, in which nothing else
	// happens.
	maxDrafts     = 1 << 12
	maxDraftBytes = 1 << 20
)

// draft is a record on its way to its place.
type draft struct {
	key     string
	value   []byte
	removed bool
	below   bool // there may be something in its place
	kept    bool // it is on the disk among the drafts, in this form or another
	changed bool // since then
}

// drafts are the records that are not in their places yet.
type drafts struct {
	of      map[string]*draft
	changed []*draft // in order, each once
	last    uint64   // number of the newest record of drafts on the disk
	bytes   int      // of those records
	spare   []*draft
	scratch []byte
}

func newDrafts() drafts { return drafts{of: make(map[string]*draft)} }

// any reports whether a reader of the database would not see all.
func (d *drafts) any() bool { return len(d.of) > 0 }

// touch returns the draft of a record that is about to change.
func (d *drafts) touch(key []byte, below bool) *draft {
	of := d.of[string(key)]
	if of == nil {
		if n := len(d.spare); n > 0 {
			of, d.spare = d.spare[n-1], d.spare[:n-1]
			*of = draft{value: of.value[:0]}
		} else {
			of = new(draft)
		}
		of.key, of.below = string(key), below
		d.of[of.key] = of
	}
	if !of.changed {
		of.changed = true
		d.changed = append(d.changed, of)
	}
	return of
}

// draft writes a record, which goes to its place later. below says that there may be something there already.
func (r *Replica) draft(key []byte, m proto.Message, below bool) {
	d := r.drafts.touch(key, below)
	d.value, d.removed = appendRecord(d.value[:0], m), false
}

// strike removes a record, wherever it is.
func (r *Replica) strike(key []byte) {
	if r.drafts.of[string(key)] == nil {
		remove(r.applying.writer.Batch(), key)
		return
	}
	d := r.drafts.touch(key, true)
	d.value, d.removed = d.value[:0], true
}

// read is load for records that may be drafts.
func (r *Replica) read(key []byte, m proto.Message) (bool, error) {
	d := r.drafts.of[string(key)]
	switch {
	case d == nil && r.applying != nil:
		return r.applying.load(key, m)
	case d == nil:
		return load(r.db, key, m)
	case d.removed:
		return false, nil
	}
	if err := proto.Unmarshal(d.value, m); err != nil {
		return false, &DamagedError{What: fmt.Sprintf("record %q cannot be read", string(key)), Err: err}
	}
	return true, nil
}

// keepDrafts has what changed in a batch survive with it.
func (r *Replica) keepDrafts(b *pebble.Batch) {
	d := &r.drafts
	if len(d.changed) == 0 {
		return
	}
	text := d.scratch[:0]
	for _, of := range d.changed {
		of.changed = false
		if of.removed && !of.below && !of.kept {
			delete(d.of, of.key)
			d.free(of)
			continue // nobody has seen it
		}
		of.kept = true
		text = appendDraft(text, of)
	}
	d.changed, d.scratch = d.changed[:0], text
	if len(text) == 0 {
		return
	}
	d.last, d.bytes = d.last+1, d.bytes+len(text)
	if err := b.Set(numbered(familyDraft, d.last), text, nil); err != nil {
		panic(fmt.Sprintf("replica: cannot write drafts: %v", err))
	}
}

// fileMany files drafts when there are many.
func (r *Replica) fileMany() error {
	if d := &r.drafts; d.bytes > maxDraftBytes || len(d.of) > maxDrafts {
		return r.file()
	}
	return nil
}

// file puts all drafts in their places, between two batches. It is also for who is about to read the database.
func (r *Replica) file() error {
	if !r.drafts.any() || r.installing {
		return nil
	}
	batch := r.db.NewBatch()
	r.drafts.place(batch)
	r.drafts.clear()
	return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
}

// place writes all where they belong, in order of keys, which is easiest for the database.
func (d *drafts) place(b *pebble.Batch) {
	all := make([]*draft, 0, len(d.of))
	for _, of := range d.of { // order: sorted below
		if !of.removed || of.below {
			all = append(all, of)
		}
	}
	slices.SortFunc(all, func(a, b *draft) int { return strings.Compare(a.key, b.key) })
	for _, of := range all {
		fileDraft(b, []byte(of.key), of.value, of.removed)
	}
	dropDrafts(b)
}

// clear forgets all, which are in their places now.
func (d *drafts) clear() {
	for _, of := range d.of { // order: their memory is all the same
		d.free(of)
	}
	clear(d.of)
	d.bytes = 0
}

// free gives the memory of a draft to another one, unless it is much.
func (d *drafts) free(of *draft) {
	if cap(of.value) <= 1<<10 && len(d.spare) < maxDrafts {
		d.spare = append(d.spare, of)
	}
}

// recoverDrafts files what was left behind by the last run.
func (r *Replica) recoverDrafts() error {
	it, err := r.db.NewIter(family(familyDraft))
	if err != nil {
		return err
	}
	batch := r.db.NewBatch()
	for valid := it.First(); valid && err == nil; valid = it.Next() {
		var text []byte
		if text, err = it.ValueAndErr(); err == nil {
			err = fileText(batch, it.Key(), text)
		}
	}
	if err = errors.Join(err, it.Error(), it.Close()); err == nil && !batch.Empty() {
		dropDrafts(batch)
		err = batch.Commit(pebble.NoSync)
	}
	return errors.Join(err, batch.Close())
}

// fileText files the drafts of one record of them.
func fileText(b *pebble.Batch, at, text []byte) error {
	for len(text) > 0 {
		removed := text[0] == draftRemoved
		key, rest, ok := record.CutBytes(text[1:])
		value, rest, ok2 := record.CutBytes(rest)
		if text[0] > draftRemoved || !ok || !ok2 || len(key) == 0 || !drafted(key[0]) {
			return &DamagedError{What: fmt.Sprintf("drafts %x cannot be read", at)}
		}
		fileDraft(b, key, value, removed)
		text = rest
	}
	return nil
}

func fileDraft(b *pebble.Batch, key, value []byte, removed bool) {
	if removed {
		remove(b, key)
		return
	}
	if err := b.Set(key, value, nil); err != nil {
		panic(fmt.Sprintf("replica: cannot write record %q: %v", string(key), err))
	}
}

func dropDrafts(b *pebble.Batch) {
	if err := b.DeleteRange([]byte{familyDraft}, []byte{familyDraft + 1}, nil); err != nil {
		panic(fmt.Sprintf("replica: cannot remove drafts: %v", err))
	}
}

// What a draft on the disk begins with. Key and value follow, with their lengths in front.
const (
	draftWritten = iota
	draftRemoved
)

func appendDraft(text []byte, d *draft) []byte {
	kind := byte(draftWritten)
	if d.removed {
		kind = draftRemoved
	}
	text = binary.AppendUvarint(append(text, kind), uint64(len(d.key)))
	text = append(text, d.key...)
	text = binary.AppendUvarint(text, uint64(len(d.value)))
	return append(text, d.value...)
}

// drafted reports whether records of a family can be drafts.
func drafted(f byte) bool { return f == familyLease || f == familyName || f == familyPast }
