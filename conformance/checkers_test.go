package conformance

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Programs that check a cluster rely on the rules of this file.

// The previous value of an event is compacted with the revision before the event.
func TestWatchFromTheCompactedRevisionHasNoPreviousValue(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		for range 3 {
			st.put("a", "") // 2 to 4
		}
		s.settle()
		previous := func() string {
			t.Helper()
			w := s.watch()
			resp := w.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 3, PrevKv: true})
			wantEqual(t, "canceled", resp.Canceled, false)
			var got []string
			for len(got) < 2 && !t.Failed() {
				for _, e := range w.next().Events {
					got = append(got, map[bool]string{true: "value", false: "none"}[e.PrevKv != nil])
				}
			}
			return strings.Join(got, " ")
		}
		wantEqual(t, "before the compaction", previous(), "value value")
		st.compact(3)
		for range 5 {
			wantEqual(t, "after the compaction", previous(), "none value")
		}
	})
}

// The number of events, and not their size, bounds a response to a watcher that did not ask for fragments.
func TestLargeHistoryComesInOneResponse(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		for range 10 {
			st.put("a", strings.Repeat("x", 1<<20)) // 2 to 11
		}
		s.settle()
		w := s.watch()
		w.watchKey("a", "", 2)
		wantEqual(t, "events", len(w.next().Events), 10)
	})
}

func TestCompactionKeepsHashKVOfItsRevision(t *testing.T) {
	eachServerWith(t, func(t *testing.T, s *server) {
		st := s.store()
		if st.hashKV(0).Hash == 0 {
			t.Error("the hash of an empty store is 0")
		}
		for range 4 {
			st.put("a", "") // 2 to 5
		}
		before := st.hashKV(4).Hash
		st.compact(4)
		wantEqual(t, "at the compacted revision", st.hashKV(4).Hash, before)
	}, areaHashKV, areaCompact)
}
