package keyspace

import (
	"fmt"
	"slices"
	"sort"
)

// EndLease deletes all keys of a lease at a revision of its own, and returns that revision. keys are exactly the keys
// attached to the generation, sorted. The Writer keeps the slice, so the caller must not change it. Without keys
// nothing happens, and EndLease returns the current revision.
//
// For more than a few keys it writes a single record, and Sweep does the rest. An error makes the Writer unusable:
// Err and every later call return it.
func (w *Writer) EndLease(id int64, generation uint64, keys []string) Revision {
	_ = w.request(func() error { return w.applyEndLease(id, generation, keys) })
	return w.s.revision
}

func (w *Writer) applyEndLease(id int64, generation uint64, keys []string) error {
	switch {
	case len(keys) == 0:
		return nil
	case w.grouped:
		return fmt.Errorf("%w: lease %x ended inside a group", ErrMisuse, id)
	case generation == 0 || w.s.byGeneration[generation] != nil:
		return fmt.Errorf("%w: lease %x has generation %d, which is none or ended", ErrMisuse, id, generation)
	case !slices.IsSorted(keys):
		return fmt.Errorf("%w: keys of lease %x are not sorted", ErrMisuse, id)
	}
	if err := w.raise(); err != nil {
		return err
	}
	if len(keys) <= w.s.few {
		return w.endFew(keys)
	}
	e := &ending{generation: generation, lease: id, revision: w.s.revision, keys: keys}
	// The ending's events will be written one by one, so no packed record may span them.
	if err := w.setPack(); err != nil {
		return err
	}
	w.s.ends = append(w.s.ends, e)
	w.s.byGeneration[generation] = e
	w.changes = append(w.changes, Change{Revision: e.revision, Ended: keys})
	w.open = false // the change is in w.changes already
	return w.setEnding(e, 0)
}

// fewKeys is the largest number of keys that EndLease deletes at once. For so few keys, writing and removing a record
// of the ending would cost as much.
const fewKeys = 2

// endFew deletes the keys of an ending lease at once.
func (w *Writer) endFew(keys []string) error {
	revision := w.s.revision
	for i, key := range keys {
		if err := w.setTombstone([]byte(key), revision); err != nil {
			return err
		}
		if err := w.addEvent(revision, uint32(i), true, []byte(key)); err != nil {
			return err
		}
	}
	w.changes = append(w.changes, Change{Revision: revision, Ended: keys})
	w.open = false // the change is in w.changes already
	return nil
}

func (w *Writer) setEnding(e *ending, swept int) error {
	w.key = appendEndedKey(w.key[:0], e.generation)
	w.rec = appendEnded(w.rec[:0], ended{revision: e.revision, lease: e.lease, keys: len(e.keys), swept: swept})
	return w.b.Set(w.key, w.rec, nil)
}

// sweepEarly writes the tombstone of one key of an ending before Sweep reaches it, because a newer version of the key
// is about to hide the delete. Sweep will write the same tombstone once more.
func (w *Writer) sweepEarly(e *ending, key []byte) error {
	i := sort.SearchStrings(e.keys, string(key))
	if i == len(e.keys) || e.keys[i] != string(key) {
		return fmt.Errorf("%w: lease %x ended without its key %q", ErrMisuse, e.lease, key)
	}
	return w.sweepKeyAt(e, i, key)
}

func (w *Writer) sweepKeyAt(e *ending, i int, key []byte) error {
	if err := w.setTombstone(key, e.revision); err != nil {
		return err
	}
	return w.setEvent(e.revision, uint32(i), true, key)
}

// Sweep writes up to maxKeys of the missing tombstones of ended leases, those of the oldest ending first. It reports
// whether more remain. It does not change the result of any read.
func (w *Writer) Sweep(maxKeys int) (more bool, err error) {
	err = w.request(func() error {
		for maxKeys > 0 && len(w.s.ends) > 0 {
			n, err := w.sweepOldest(maxKeys)
			if err != nil {
				return err
			}
			maxKeys -= n
		}
		return nil
	})
	return len(w.s.ends) > 0, err
}

// sweepOldest writes up to limit tombstones of the oldest ending.
func (w *Writer) sweepOldest(limit int) (n int, err error) {
	e := w.s.ends[0]
	for ; n < limit && w.s.swept < len(e.keys); n++ {
		if err := w.sweepKeyAt(e, w.s.swept, []byte(e.keys[w.s.swept])); err != nil {
			return n, err
		}
		w.s.swept++
	}
	if w.s.swept < len(e.keys) {
		return n, w.setEnding(e, w.s.swept)
	}
	// The record is removed in the same batch as the last tombstones are written, so a reader finds the record or all
	// tombstones.
	w.s.ends = w.s.ends[1:]
	w.s.swept = 0
	delete(w.s.byGeneration, e.generation)
	w.key = appendEndedKey(w.key[:0], e.generation)
	return n, w.b.Delete(w.key, nil)
}
