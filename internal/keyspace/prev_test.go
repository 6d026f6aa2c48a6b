package keyspace

import "testing"

// A watcher from the compacted revision receives no previous value, also if another watcher has read that value before.
func TestCompactedPreviousValuesAreWithheld(t *testing.T) {
	h := newFixture(t)
	for range 3 {
		h.write(func(w *Writer) { _, _ = w.Put(PutRequest{Key: []byte("k")}) }) // revisions 2 to 4
	}
	hub := NewHub(h.store)
	hasPrevious := func(from Revision) (got []bool) {
		t.Helper()
		st := hub.NewStream(StreamLimits{})
		defer st.Close()
		if _, err := st.Watch(WatchRequest{Key: []byte("k"), StartRevision: from, PrevKV: true}); err != nil {
			t.Fatal(err)
		}
		for len(got) < int(5-from) {
			r, err := st.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range r.Events {
				got = append(got, e.PrevKV != nil)
			}
		}
		return got
	}
	if got := hasPrevious(3); !got[0] || !got[1] {
		t.Fatalf("before the compaction: %v", got)
	}
	h.write(func(w *Writer) { _ = w.Compact(3) })
	if got := hasPrevious(3); got[0] || !got[1] {
		t.Errorf("after the compaction of 3, the events of 3 and 4 have previous values: %v, want false and true", got)
	}
}
