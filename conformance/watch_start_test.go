package conformance

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

const textCompacted = "etcdserver: mvcc: required revision has been compacted"

func TestWatchCreated(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		w := s.watch()
		resp := w.create(&pb.WatchCreateRequest{Key: []byte("a")})
		wantEqual(t, "the first id", resp.WatchId, 0)
		wantEqual(t, "canceled", resp.Canceled, false)
		wantEqual(t, "compact revision", resp.CompactRevision, 0)
		wantEqual(t, "cancel reason", resp.CancelReason, "")
		wantEqual(t, "header", resp.Header.Revision, 2)
		if h := resp.Header; h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
			t.Errorf("header is not filled: %v", h)
		}
		wantEqual(t, "the second id", w.watchKey("b", "", 0), 1)
		wantEqual(t, "another stream counts for itself", s.watch().watchKey("a", "", 0), 0)
	})
}

func TestWatchFromNow(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "old") // 2
		w := s.watch()
		id := w.watchKey("a", "", 0)
		st.put("a", "1") // 3
		st.put("b", "1") // 4
		st.delete("a")   // 5
		st.put("a", "2") // 6
		resp := w.next()
		wantEqual(t, "watcher", resp.WatchId, id)
		wantEqual(t, "first event", showEvents(resp.Events[:1]), "PUT a=1 c2 m3 v2")
		wantEqual(t, "the rest", showEvents(resp.Events[1:])+w.eventsUntil(6)[id], lines(
			"DELETE a= c0 m5 v0", "PUT a=2 c6 m6 v1"))
	})
}

func TestWatchFromRevisions(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1") // 2
		st.put("a", "2") // 3
		st.delete("a")   // 4
		st.put("a", "3") // 5
		history := []string{"PUT a=1 c2 m2 v1", "PUT a=2 c2 m3 v2", "DELETE a= c0 m4 v0", "PUT a=3 c5 m5 v1", "PUT a=4 c5 m6 v2", "PUT a=5 c5 m7 v3"}
		w := s.watch()
		ids := make(map[int64]int64)
		for from := int64(1); from <= 7; from++ {
			// Several watchers and their past events share this stream, so the
			// created response need not be next.
			ids[from] = from
			w.request(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: from, WatchId: from})
		}
		created := 0
		got := make(map[int64]string)
		add := func(resp *pb.WatchResponse) {
			if resp.Created {
				created++
			}
			if len(resp.Events) > 0 {
				got[resp.WatchId] += showEvents(resp.Events) + "\n"
			}
		}
		for created < 7 {
			add(w.next())
		}
		st.put("a", "4") // 6
		st.put("a", "5") // 7
		for _, resp := range w.until(7) {
			add(resp)
		}
		for from, id := range ids {
			first := max(from-2, 0)
			want := lines(history[first:]...)
			if want != "" {
				want += "\n"
			}
			wantEqual(t, "events", got[id], want)
		}
	})
}

// A watcher that starts in the future is sent nothing older, even when it could
// be sent at once.
func TestWatchFromTheFuture(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		id := w.watchKey("a", "", 5)
		for _, v := range []string{"1", "2", "3", "4", "5"} {
			st.put("a", v) // 2 to 6
		}
		wantEqual(t, "events", w.eventsUntil(6)[id], lines("PUT a=4 c2 m5 v4", "PUT a=5 c2 m6 v5"))
	})
}

func TestWatchIntervals(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		want := make(map[int64]string)
		for _, c := range []struct{ key, end, want string }{
			{"b", "", "b"},
			{"b", "b\x00", "b"},
			{"b", "c", "b b/1 b/2"},
			{"b/", "b0", "b/1 b/2"},
			{"b/2", "\x00", "b/2 c \xff"},
			{"\x00", "\x00", "\x00 a b b/1 b/2 c \xff"},
			{"", "\x00", "\x00 a b b/1 b/2 c \xff"},
			{"", "b", "\x00 a"},
			{"", "", "\x00"},
			{"x", "", ""},
		} {
			want[w.watchKey(c.key, c.end, 2)] = c.want
		}
		for _, k := range []string{"\x00", "a", "b", "b/1", "b/2", "c", "\xff"} {
			st.put(k, "")
		}
		got := make(map[int64]string)
		for _, resp := range w.until(8) {
			for _, e := range resp.Events {
				if got[resp.WatchId] != "" {
					got[resp.WatchId] += " "
				}
				got[resp.WatchId] += string(e.Kv.Key)
			}
		}
		for id, want := range want {
			wantEqual(t, "keys", got[id], want)
		}
	})
}

func TestRefusedWatchIsCancelledWithAReason(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		w := s.watch()
		for _, c := range []struct {
			what   string
			req    *pb.WatchCreateRequest
			reason string
		}{
			{"end before key", &pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")}, "mvcc: watcher range is empty"},
			{"end equal to key", &pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("b")}, "mvcc: watcher range is empty"},
			{"negative start", &pb.WatchCreateRequest{Key: []byte("a"), StartRevision: -1}, textCompacted},
			{"negative start, empty range, id given", &pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a"), StartRevision: -5, WatchId: 3}, textCompacted},
			{"empty range, id given", &pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a"), WatchId: 3}, "mvcc: watcher range is empty"},
		} {
			resp := w.create(c.req)
			wantEqual(t, c.what+": canceled", resp.Canceled, true)
			wantEqual(t, c.what+": id", resp.WatchId, -1)
			wantEqual(t, c.what+": reason", resp.CancelReason, c.reason)
			wantEqual(t, c.what+": compact revision", resp.CompactRevision, 0)
			wantEqual(t, c.what+": header", resp.Header.Revision, 2)
		}
		// The stream stays open, and a refusal has used up no id.
		id := w.watchKey("a", "", 2)
		wantEqual(t, "id", id, 0)
		wantEqual(t, "events", w.eventsUntil(2)[id], "PUT a=1 c2 m2 v1")
	})
}

func TestWatchIDs(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		create := func(id int64) *pb.WatchResponse {
			return w.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: id})
		}
		wantEqual(t, "server's choice", create(0).WatchId, 0)
		wantEqual(t, "chosen", create(1).WatchId, 1)
		wantEqual(t, "server's choice, past a taken one", create(0).WatchId, 2)
		wantEqual(t, "chosen", create(40).WatchId, 40)
		wantEqual(t, "negative", create(-7).WatchId, -7)
		wantEqual(t, "server's choice, unmoved by larger ones", create(0).WatchId, 3)

		resp := create(40)
		wantEqual(t, "duplicate: canceled", resp.Canceled, true)
		wantEqual(t, "duplicate: id", resp.WatchId, -1)
		wantEqual(t, "duplicate: reason", resp.CancelReason, "mvcc: duplicate watch ID provided on the WatchStream")

		w.cancel(40)
		resp = w.next()
		wantEqual(t, "canceled", resp.Canceled, true)
		wantEqual(t, "canceled id", resp.WatchId, 40)
		wantEqual(t, "free again", create(40).WatchId, 40)

		st.put("a", "1")
		events := w.eventsUntil(2)
		wantEqual(t, "watchers", len(events), 6)
		for _, id := range []int64{0, 1, 2, 3, 40, -7} {
			wantEqual(t, "event", events[id], "PUT a=1 c2 m2 v1")
		}
	})
}
