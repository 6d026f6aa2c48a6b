package keyspace

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// trimming is how far the removal of compacted revisions has come. It is of
// the writing goroutine.
type trimming struct {
	done Revision // all compacted up to it is removed; ≤ Store.compact
	to   Revision // what the pass under way removes up to; ≤ published.compact
	from []byte   // where the pass goes on in the 'v' family; nil: none is under way
}

// Trim removes what was compacted from the database, looking at up to maxKeys
// keys. It reports whether there is more to do. Like Sweep it may run
// differently on each member: no revision that can be read is changed by it.
//
// It removes up to the compact revision that readers know, see openView, and
// not before all leases that ended up to there are swept: their keys' last
// versions are needed for that.
func (w *Writer) Trim(maxKeys int) (more bool, err error) {
	err = w.request(func() error {
		if !w.startTrim() {
			return nil
		}
		return w.trimSome(maxKeys)
	})
	return w.s.Trimmable(), err
}

// Trimmable reports whether Trim has something to do that need not wait for
// Sweep. Only the writing goroutine may ask.
func (s *Store) Trimmable() bool {
	if s.suspended() {
		return false
	}
	compact := s.CompactRevision()
	return s.trimming.from != nil ||
		compact > s.trimming.done && (len(s.ends) == 0 || s.ends[0].revision > compact)
}

// Trimmed returns the revision up to which everything compacted is removed, -1
// if that never happened. Only the writing goroutine may ask.
func (s *Store) Trimmed() Revision { return s.trimming.done }

// startTrim begins a pass if none is under way and there is need for one.
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

// trimKey removes the versions of a key that nothing can read any more: those
// before its newest one up to the revision, and that one too if it is a
// tombstone. They go in one batch, so none comes to light again. It moves on
// to the next key.
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

// finishTrim removes the history up to the pass's revision. Events of the
// revision itself can still be watched; older ones that share a record with
// them stay, and nobody reads them.
func (w *Writer) finishTrim() error {
	t := &w.s.trimming
	t.done, t.from = t.to, nil
	first, end := appendHistoryKey(nil, emptyRevision, 0), appendHistoryKey(nil, max(t.done, emptyRevision), 0)
	if err := w.b.DeleteRange(first, end, nil); err != nil {
		return err
	}
	return w.b.Set(metaTrimmed, appendRevision(nil, t.done), nil)
}
