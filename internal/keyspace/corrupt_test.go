package keyspace

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
)

// TestCorruptRecordIsNamed damages one record after the other. Each reader of it must return an error that names the
// record.
func TestCorruptRecordIsNamed(t *testing.T) {
	all := RangeRequest{Key: []byte{0}, End: []byte{0}}
	read := func(h *fixture) error { _, err := h.store.Range(context.Background(), all); return err }
	open := func(h *fixture) error { _, err := Open(h.db, h.leases); return err }
	watch := func(h *fixture) error {
		st := NewHub(h.store).NewStream(StreamLimits{})
		defer st.Close()
		if _, err := st.Watch(WatchRequest{End: []byte{0}, StartRevision: 1}); err != nil {
			return err
		}
		for !st.idle() {
			if _, err := nextNow(st); err != nil {
				return err
			}
		}
		return nil
	}
	write := func(h *fixture) error {
		b := h.db.NewIndexedBatch()
		defer b.Close()
		w := h.store.Begin(b)
		_, err := w.Put(PutRequest{Key: []byte("a")})
		if err != nil {
			if _, again := w.Sweep(1); !errors.Is(again, err) || !errors.Is(w.Err(), err) {
				return errors.New("the writer goes on after an error")
			}
		}
		return err
	}
	versionOfA := appendVersionKey(nil, []byte("a"), 2)
	for _, c := range []struct {
		name   string
		key    []byte
		record string // "": the record is removed
		readBy func(*fixture) error
	}{
		{"version read", versionOfA, "?", read},
		{"version written over", versionOfA, "\x11\x00", write},
		{"version of the wrong kind, watched", versionOfA, "\x12", watch},
		{"version missing, watched", versionOfA, "", watch},
		{"version found at start", versionOfA, "?", open},
		{"key of a version", []byte("vfoo"), "\x12", read},
		{"key of a version at start", []byte("vfoo"), "\x12", open},
		{"key of a user key", []byte("va\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xfd"), "\x11\x02\x01\x00\x00", read},
		{"event", appendHistoryKey(nil, 2, 0), "?", watch},
		{"key of an event", append(appendHistoryKey(nil, 2, 0), 1), "!a", watch},
		{"ended lease read", appendEndedKey(nil, 1), "?", read},
		{"ended lease at start", appendEndedKey(nil, 1), "?", open},
		{"ended lease with another number of keys", appendEndedKey(nil, 1), "1\x04\x02\x05\x00", open},
		{"ended lease in the future", appendEndedKey(nil, 1), "1\x44\x02\x02\x00", open},
		{"ended lease out of turn", appendEndedKey(nil, 2), "1\x05\x02\x01\x00", open},
		{"key of an ended lease", []byte("e1"), "1\x04\x02\x02\x00", open},
		{"revision", metaRevision, "?", open},
		{"revision too low", metaRevision, "A\x00", open},
		{"compact revision", metaCompact, "A\x7e", open},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newFixture(t)
			h.grant(1)
			h.write(func(w *Writer) {
				for _, key := range []string{"a", "b"} {
					if _, err := w.Put(PutRequest{Key: []byte(key), Lease: 1}); err != nil {
						t.Fatal(err)
					}
				}
				h.end(w, 1)
			})
			var err error
			if c.record == "" {
				err = h.db.Delete(c.key, pebble.NoSync)
			} else {
				err = h.db.Set(c.key, []byte(c.record), pebble.NoSync)
			}
			if err != nil {
				t.Fatal(err)
			}
			h.store.recents = recents{} // else the record would not be read
			err = c.readBy(h)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
		})
	}
}

// TestWriterMisuseIsRefused breaks the contract of a Writer.
func TestWriterMisuseIsRefused(t *testing.T) {
	put := func(w *Writer, lease int64) error {
		_, err := w.Put(PutRequest{Key: []byte("a"), Lease: lease})
		return err
	}
	for name, f := range map[string]func(h *fixture, w *Writer) error{
		"group in a group": func(_ *fixture, w *Writer) error {
			return w.Group(func() error { return w.Group(func() error { return nil }) })
		},
		"group fails late": func(_ *fixture, w *Writer) error {
			return w.Group(func() error { return errors.Join(put(w, 0), ErrKeyNotFound) })
		},
		"keys not sorted": func(_ *fixture, w *Writer) error {
			w.EndLease(1, 1, []string{"b", "a"})
			return w.Err()
		},
		"ended twice": func(_ *fixture, w *Writer) error {
			w.EndLease(1, 1, []string{"a"})
			w.EndLease(1, 1, []string{"a"})
			return w.Err()
		},
		"ended in a group": func(_ *fixture, w *Writer) error {
			return w.Group(func() error { w.EndLease(1, 1, []string{"a"}); return nil })
		},
		"ended without a key": func(_ *fixture, w *Writer) error {
			if err := put(w, 1); err != nil {
				return err
			}
			w.EndLease(1, 1, []string{"b"})
			return put(w, 0)
		},
		"ended lease used": func(_ *fixture, w *Writer) error {
			w.EndLease(1, 1, []string{"a"})
			return put(w, 1)
		},
		"used after it was sealed": func(_ *fixture, w *Writer) error {
			if err := errors.Join(put(w, 0), w.Seal()); err != nil {
				return err
			}
			return put(w, 0)
		},
		"used after commit": func(h *fixture, w *Writer) error {
			h.store.Commit(w)
			return put(w, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixture(t)
			h.grant(1)
			b := h.db.NewIndexedBatch()
			defer b.Close()
			if err := f(h, h.store.Begin(b)); !errors.Is(err, ErrMisuse) {
				t.Fatalf("got %v", err)
			}
		})
	}
}

// TestRefusedGroupChangesNothing refuses a group at its first operation.
func TestRefusedGroupChangesNothing(t *testing.T) {
	h := newFixture(t)
	h.write(func(w *Writer) {
		err := w.Group(func() error { _, err := w.Put(PutRequest{}); return err })
		if !errors.Is(err, ErrEmptyKey) || w.Err() != nil || len(w.Changes()) != 0 {
			t.Fatalf("%v, then %v and %v", err, w.Err(), w.Changes())
		}
	})
}
