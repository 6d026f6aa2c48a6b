package keyspace

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// trimming is the progress of removing compacted data. Only the writing goroutine uses it.
type trimming struct {
	done Revision // everything compacted up to it is removed; ≤ Store.compact
	to   Revision // the current pass removes data up to it; ≤ published.compact
	from []byte   // where the pass continues in the 'v' family; nil: no pass is under way
}

// Trim removes compacted data from the database. It looks at up to maxKeys keys, and reports whether there is more to
// do. Like Sweep it may run differently on each member: it changes no readable revision.
//
// It removes data up to the compact revision that readers know, see openView. It waits until all leases that ended by
// that revision are swept, because Sweep needs the last versions of their keys.
func (w *Writer) Trim(maxKeys int) (more bool, err error) {
	err = w.request(func() error {
		if !w.startTrim() {
			return nil
		}
		return w.trimSome(maxKeys)
	})
	return w.s.Trimmable(), err
}

// Trimmable reports whether Trim can do something now, without waiting for Sweep. Only the writing goroutine may call
// it.
func (s *Store) Trimmable() bool {
	if s.suspended() {
		return false
	}
	compact := s.CompactRevision()
	return s.trimming.from != nil ||
		compact > s.trimming.done && (len(s.ends) == 0 || s.ends[0].revision > compact)
}

// Trimmed returns the revision up to which all compacted data is removed, or -1 if none ever was. Only the writing
// goroutine may call it.
func (s *Store) Trimmed() Revision { return s.trimming.done }

// startTrim begins a pass if none is under way and one is needed.
func (w *Writer) startTrim() bool {
	if !w.s.Trimmable() {
		return false
	}
	if t := &w.s.trimming; t.from == nil {
		t.to, t.from = w.s.CompactRevision(), []byte{FamilyVersions}
	}
	return true
}

func (w *Writer) trimSome(maxKeys int) (err error) {
	t := &w.s.trimming
	b, err := w.Indexed()
	if err != nil {
		return err
	}
	it, err := b.NewIter(&pebble.IterOptions{LowerBound: t.from, UpperBound: []byte{FamilyVersions + 1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	c := cursor{it: it, rev: t.to}
	valid := it.First()
	for ; valid && maxKeys > 0; maxKeys-- {
		found, err := c.newest()
		if err != nil {
			return err
		}
		if !found {
			valid = it.Valid()
			continue
		}
		if valid, err = w.trimKey(&c); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	if valid {
		t.from = bytes.Clone(it.Key())
		return nil
	}
	return w.finishTrim()
}

// trimKey removes the unreadable versions of a key: those before its newest one up to the revision, and that one too
// if it is a tombstone. It removes them in one batch, so that no removed version hides an older one that remains. It
// then moves to the next key.
func (w *Writer) trimKey(c *cursor) (valid bool, err error) {
	v, err := versionAt(c.it)
	if err != nil {
		return false, err
	}
	if !v.deleted {
		if valid = c.it.Next(); !valid || !bytes.HasPrefix(c.it.Key(), c.prefix) {
			return valid, nil
		}
	}
	first := bytes.Clone(c.it.Key())
	if valid = c.it.Next(); !valid || !bytes.HasPrefix(c.it.Key(), c.prefix) {
		return valid, w.b.Delete(first, nil)
	}
	if err := w.b.DeleteRange(first, pastPrefix(bytes.Clone(c.prefix)), nil); err != nil {
		return false, err
	}
	return c.nextKey(), nil
}

// finishTrim removes the history below the pass's revision. Events of that revision can still be watched. Older
// events in the same record remain, but are never read.
func (w *Writer) finishTrim() error {
	t := &w.s.trimming
	t.done, t.from = t.to, nil
	first, end := appendHistoryKey(nil, emptyRevision, 0), appendHistoryKey(nil, max(t.done, emptyRevision), 0)
	if err := w.b.DeleteRange(first, end, nil); err != nil {
		return err
	}
	return w.b.Set(metaTrimmed, appendRevision(nil, t.done), nil)
}
