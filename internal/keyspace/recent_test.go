package keyspace

import (
	"fmt"
	"testing"
)

// A cached version equals the database's, whatever happened to the key.
func TestRecentVersionsMatchDatabase(t *testing.T) {
	h := newFixture(t)
	put := func(lease int64) PutResult {
		t.Helper()
		var res PutResult
		h.write(func(w *Writer) {
			var err error
			if res, err = w.Put(PutRequest{Key: []byte("k"), Value: []byte("v"), Lease: lease}); err != nil {
				t.Fatal(err)
			}
		})
		return res
	}
	read := func() KV {
		t.Helper()
		res, err := h.store.Range(t.Context(), RangeRequest{Key: []byte("k")})
		if err != nil || len(res.KVs) > 1 {
			t.Fatal(res, err)
		}
		if len(res.KVs) == 0 {
			return KV{}
		}
		return res.KVs[0]
	}
	sweep := func() { h.write(func(w *Writer) { w.Sweep(100) }) }
	for i, c := range []struct {
		what   string
		before func()
		want   string // create, mod, version of the put after it
	}{
		{"nothing", func() {}, "2 2 1"},
		{"a put", func() {}, "2 3 2"},
		{"a deletion", func() { h.write(func(w *Writer) { w.DeleteRange(DeleteRequest{Key: []byte("k")}) }) }, "5 5 1"},
		{"the end of its lease", func() { h.grant(1); put(1); h.write(func(w *Writer) { h.end(w, 1) }) }, "8 8 1"},
		{"a sweep of an end before the newest version", sweep, "8 9 2"},
		{"a swept end", func() { h.grant(2); put(2); h.write(func(w *Writer) { h.end(w, 2) }); sweep() }, "12 12 1"},
		{"a put that looked for nothing", func() {
			h.write(func(w *Writer) { w.DeleteRange(DeleteRequest{Key: []byte("k")}) })
			h.write(func(w *Writer) { w.Put(PutRequest{Key: []byte("k"), Absent: true}) })
		}, "14 15 2"},
	} {
		c.before()
		put(0)
		if kv := read(); fmt.Sprint(kv.CreateRevision, kv.ModRevision, kv.Version) != c.want {
			t.Errorf("%d: after %s: %+v, want %s", i, c.what, kv, c.want)
		}
	}
}

// A put with Absent set is usually the only put of its key, so it adds no cached version.
func TestAbsentPutsAreNotCached(t *testing.T) {
	h := newFixture(t)
	put := func(absent bool) {
		h.write(func(w *Writer) {
			if _, err := w.Put(PutRequest{Key: []byte("k"), Absent: absent}); err != nil {
				t.Fatal(err)
			}
		})
	}
	put(true)
	if n, ok := h.store.recents.get([]byte("k")); ok {
		t.Errorf("it is remembered: %+v", n)
	}
	put(false)
	if n, ok := h.store.recents.get([]byte("k")); !ok || n.version.version != 2 {
		t.Errorf("after a put that looked: %+v, %v", n, ok)
	}
}

func TestRecentVersionsAreBounded(t *testing.T) {
	var r recents
	for i := range 5 * recentKeys {
		r.set(fmt.Append(nil, i), Revision(i), version{version: 1, value: []byte("dropped")})
	}
	if n := len(r.young) + len(r.old); n > 2*recentKeys {
		t.Errorf("%d keys remembered", n)
	}
	if n, ok := r.get(fmt.Append(nil, 5*recentKeys-1)); !ok || n.version.value != nil {
		t.Errorf("the newest key: %+v, %v", n, ok)
	}
	if _, ok := r.get([]byte("0")); ok {
		t.Error("the oldest key is remembered")
	}
}
