package keyspace

import (
	"bytes"
	"errors"
	"testing"
)

// For any input the decoders return a *CorruptError that names the key, or a record that encodes to an equal one.

func checkDecoded(t *testing.T, key []byte, err error, again func() error) {
	t.Helper()
	if err == nil {
		if err = again(); err != nil {
			t.Fatalf("decoded once but not again: %v", err)
		}
		return
	}
	var c *CorruptError
	if !errors.As(err, &c) || !bytes.Equal(c.Key, key) {
		t.Fatalf("%v is not a CorruptError of %q", err, key)
	}
}

func FuzzVersionRecord(f *testing.F) {
	f.Add(tombstone)
	f.Add(appendVersion(nil, &version{create: 2, version: 1, lease: -5, generation: 7, value: []byte("x")}))
	f.Add([]byte{formatTombstone, 0})
	f.Add([]byte{formatValue, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
	key := appendVersionKey(nil, []byte("k"), 5)
	f.Fuzz(func(t *testing.T, rec []byte) {
		v, err := decodeVersion(key, rec)
		checkDecoded(t, key, err, func() error {
			if v.deleted {
				return nil
			}
			w, err := decodeVersion(key, appendVersion(nil, &v))
			if err == nil && (w.create != v.create || w.version != v.version || w.lease != v.lease ||
				w.generation != v.generation || !bytes.Equal(w.value, v.value)) {
				t.Fatalf("%+v became %+v", v, w)
			}
			return err
		})
	})
}

func FuzzEventRecord(f *testing.F) {
	f.Add(appendEvent(nil, true, []byte("k")))
	f.Add([]byte{formatPut})
	f.Add(appendPacked(appendPacked([]byte{formatEvents}, 3, true, []byte("k")), 2, false, []byte("l")))
	f.Add(appendPacked([]byte{formatEvents}, 6, true, []byte("k")))
	f.Add(appendPacked([]byte{formatEvents}, 1<<62, true, []byte("k")))
	key := appendHistoryKey(nil, 5, 1)
	f.Fuzz(func(t *testing.T, rec []byte) {
		events, err := decodeEvents(key, rec)
		if err == nil && len(rec) > 0 && rec[0] != formatEvents {
			if e := events.current; e.rev != 5 || !bytes.Equal(appendEvent(nil, e.deleted, e.key), rec) {
				t.Fatalf("%q is not %+v", rec, e)
			}
			return
		}
		again, before := []byte{formatEvents}, Revision(0)
		for err == nil {
			e := events.current
			again = appendPacked(again, e.rev-before, e.deleted, e.key)
			before = e.rev
			if len(events.rest) == 0 {
				break
			}
			err = events.next()
		}
		checkDecoded(t, key, err, func() error {
			// A number may be encoded in more bytes than necessary.
			if before != 5 || len(again) > len(rec) {
				t.Fatalf("%q became %q", rec, again)
			}
			return nil
		})
	})
}

func FuzzEndedRecord(f *testing.F) {
	f.Add(appendEnded(nil, ended{revision: 4, lease: 1 << 60, keys: 10, swept: 9}))
	f.Add(appendEnded(nil, ended{revision: 4, lease: 1, keys: 10, swept: 10}))
	f.Add([]byte{formatEnded})
	key := appendEndedKey(nil, 3)
	f.Fuzz(func(t *testing.T, rec []byte) {
		e, err := decodeEnded(key, rec)
		checkDecoded(t, key, err, func() error {
			again, err := decodeEnded(key, appendEnded(nil, e))
			if again != e {
				t.Fatalf("%+v became %+v", e, again)
			}
			return err
		})
	})
}

func FuzzRevisionRecord(f *testing.F) {
	f.Add(appendRevision(nil, -1))
	f.Add([]byte{formatRevision, 0x80})
	f.Fuzz(func(t *testing.T, rec []byte) {
		rev, err := decodeRevision(metaRevision, rec)
		checkDecoded(t, metaRevision, err, func() error {
			again, err := decodeRevision(metaRevision, appendRevision(nil, rev))
			if again != rev {
				t.Fatalf("%d became %d", rev, again)
			}
			return err
		})
	})
}

func FuzzDatabaseKeys(f *testing.F) {
	f.Add(appendVersionKey(nil, []byte("a\x00b\xff"), 9))
	f.Add(appendHistoryKey(nil, 9, 1))
	f.Add(appendEndedKey(nil, 9))
	f.Add([]byte("v\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, k []byte) {
		prefix, rev, err := splitVersionKey(k)
		checkDecoded(t, k, err, func() error {
			key, err := userKey(prefix)
			if err == nil && !bytes.Equal(appendVersionKey(nil, key, rev), k) {
				t.Fatalf("%q at %d is not %q", key, rev, k)
			}
			var c *CorruptError
			if errors.As(err, &c) {
				return nil
			}
			return err
		})
		rev, sub, err := splitHistoryKey(k)
		checkDecoded(t, k, err, func() error {
			if !bytes.Equal(appendHistoryKey(nil, rev, sub), k) {
				t.Fatalf("%d/%d is not %q", rev, sub, k)
			}
			return nil
		})
		generation, err := splitEndedKey(k)
		checkDecoded(t, k, err, func() error {
			if !bytes.Equal(appendEndedKey(nil, generation), k) {
				t.Fatalf("%d is not %q", generation, k)
			}
			return nil
		})
	})
}

// FuzzKeyOrder checks that encoded keys sort like the keys, and that revisions do not affect the order.
func FuzzKeyOrder(f *testing.F) {
	f.Add([]byte("a"), []byte("a\x00"), int64(1), int64(1<<62))
	f.Add([]byte("a\x00\x01"), []byte("a\x00"), int64(7), int64(7))
	f.Fuzz(func(t *testing.T, a, b []byte, ra, rb int64) {
		x, y := appendVersionKey(nil, a, ra), appendVersionKey(nil, b, rb)
		if c := bytes.Compare(a, b); c != 0 && bytes.Compare(x, y) != c {
			t.Fatalf("%q and %q, encoded %q and %q", a, b, x, y)
		}
		past := pastPrefix(appendVersionPrefix(nil, a))
		if bytes.Compare(x, past) >= 0 {
			t.Fatalf("%q is not below %q", x, past)
		}
		if c := bytes.Compare(a, b); c < 0 && bytes.Compare(y, past) < 0 {
			t.Fatalf("%q is below %q", y, past)
		}
	})
}
