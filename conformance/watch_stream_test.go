package conformance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWatchPrevKV(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		lease := st.grant(60).ID
		w := s.watch()
		with := w.create(&pb.WatchCreateRequest{Key: []byte("a"), PrevKv: true}).WatchId
		without := w.watchKey("a", "", 0)
		st.put("a", "1", clientv3.WithLease(lease)) // 2
		st.put("a", "2")                            // 3
		st.delete("a")                              // 4
		st.put("a", "3")                            // 5
		events := w.eventsUntil(5)
		wantEqual(t, "with previous values", events[with], lines(
			fmt.Sprintf("PUT a=1 c2 m2 v1 lease %x", int64(lease)),
			fmt.Sprintf("PUT a=2 c2 m3 v2 before: a=1 c2 m2 v1 lease %x", int64(lease)),
			"DELETE a= c0 m4 v0 before: a=2 c2 m3 v2",
			"PUT a=3 c5 m5 v1"))
		wantEqual(t, "without", events[without], lines(
			fmt.Sprintf("PUT a=1 c2 m2 v1 lease %x", int64(lease)),
			"PUT a=2 c2 m3 v2", "DELETE a= c0 m4 v0", "PUT a=3 c5 m5 v1"))

		// The same from the past.
		past := s.watch()
		id := past.create(&pb.WatchCreateRequest{Key: []byte("a"), PrevKv: true, StartRevision: 3}).WatchId
		wantEqual(t, "from the past", past.eventsUntil(5)[id], lines(
			fmt.Sprintf("PUT a=2 c2 m3 v2 before: a=1 c2 m2 v1 lease %x", int64(lease)),
			"DELETE a= c0 m4 v0 before: a=2 c2 m3 v2",
			"PUT a=3 c5 m5 v1"))
	})
}

func TestWatchFilters(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const noPut, noDelete = pb.WatchCreateRequest_NOPUT, pb.WatchCreateRequest_NODELETE
		filters := [][]pb.WatchCreateRequest_FilterType{{noPut}, {noDelete}, {noPut, noDelete}}
		want := []string{"DELETE a= c0 m3 v0", lines("PUT a=1 c2 m2 v1", "PUT a=2 c4 m4 v1"), ""}
		live := s.watch()
		for _, f := range filters {
			live.create(&pb.WatchCreateRequest{Key: []byte("a"), Filters: f})
		}
		st.put("a", "1") // 2
		st.delete("a")   // 3
		st.put("a", "2") // 4
		got := live.eventsUntil(4)
		for i, want := range want {
			wantEqual(t, "live", got[int64(i)], want)
			past := s.watch()
			past.create(&pb.WatchCreateRequest{Key: []byte("a"), Filters: filters[i], StartRevision: 1})
			wantEqual(t, "from the past", past.eventsUntil(4)[0], want)
		}
	})
}

func TestWatchSeveralInOneStream(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		one, prefix, twin := w.watchKey("a/1", "", 2), w.watchKey("a/", "a0", 2), w.watchKey("a/1", "", 2)
		st.put("a/1", "x") // 2
		st.put("a/2", "y") // 3
		st.put("a/1", "z") // 4
		events := w.eventsUntil(4)
		wantEqual(t, "one key", events[one], lines("PUT a/1=x c2 m2 v1", "PUT a/1=z c2 m4 v2"))
		wantEqual(t, "its twin", events[twin], lines("PUT a/1=x c2 m2 v1", "PUT a/1=z c2 m4 v2"))
		wantEqual(t, "prefix", events[prefix], lines("PUT a/1=x c2 m2 v1", "PUT a/2=y c3 m3 v1", "PUT a/1=z c2 m4 v2"))
	})
}

func TestWatchCancel(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		gone, stays := w.watchKey("a", "", 0), w.watchKey("a", "", 0)
		// What does not exist is not answered, and does no harm.
		w.cancel(77)
		w.cancel(gone)
		resp := w.next()
		wantEqual(t, "canceled", resp.Canceled, true)
		wantEqual(t, "created", resp.Created, false)
		wantEqual(t, "id", resp.WatchId, gone)
		wantEqual(t, "reason", resp.CancelReason, "")
		wantEqual(t, "compact revision", resp.CompactRevision, 0)
		wantEqual(t, "header", resp.Header.Revision, 1)
		st.put("a", "1")
		events := w.eventsUntil(2)
		wantEqual(t, "the canceled one", events[gone], "")
		wantEqual(t, "the other", events[stays], "PUT a=1 c2 m2 v1")
		w.cancel(gone)
		wantEqual(t, "canceling again is not answered", len(w.eventsUntil(2)), 0)
		wantEqual(t, "a canceled id is not chosen again", w.watchKey("a", "", 0), 2)
	})
}

func TestWatchEventsOfOneRevisionArriveTogether(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const n = 300
		for i := range n {
			st.put(fmt.Sprintf("key%03d", i), "")
		}
		live := s.watch()
		live.watchKey("key", "kez", 0)
		st.delete("key", clientv3.WithPrefix())
		past := s.watch()
		past.watchKey("key", "kez", n+2)
		for what, w := range map[string]*watchStream{"live": live, "from the past": past} {
			resp := w.next()
			wantEqual(t, what+": events", len(resp.Events), n)
			wantEqual(t, what+": header", resp.Header.Revision, n+2)
			for i, e := range resp.Events {
				if want := fmt.Sprintf("DELETE key%03d= c0 m%d v0", i, n+2); showEvents(resp.Events[i:i+1]) != want {
					t.Fatalf("%s: event %d is %v, want %s", what, i, e, want)
				}
			}
		}
	})
}

func TestWatcherThatCatchesUpReceivesTheCurrentRevision(t *testing.T) {
	eachServer(t, func(t *testing.T, s *server) {
		st := s.store()
		for _, key := range []string{"a", "b", "c"} {
			st.put(key, "") // 2 to 4
		}
		w := s.watch()
		w.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
		resp := w.next()
		wantEqual(t, "events", showEvents(resp.Events), "PUT a= c2 m2 v1")
		wantEqual(t, "header", resp.Header.Revision, 4)
		st.put("a", "") // 5
		st.put("b", "") // 6
		wantEqual(t, "header of a live event", w.next().Header.Revision, 5)
	})
}

// Only a watcher that says it can put them together again is sent the events of
// one revision in pieces, and only when they are too many for one message.
func TestWatchFragments(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const n, size = 4, 1 << 20
		for i := range n {
			st.put(fmt.Sprintf("k%d", i), string(make([]byte, size))) // 2 to 5
		}
		whole, pieces := s.watch(), s.watch()
		create := func(w *watchStream, fragment bool) {
			w.create(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 6, PrevKv: true, Fragment: fragment})
		}
		create(whole, false)
		create(pieces, true)
		st.delete("k", clientv3.WithPrefix()) // 6

		resp := whole.next()
		wantEqual(t, "whole: events", len(resp.Events), n)
		wantEqual(t, "whole: fragment", resp.Fragment, false)
		var got []string
		for more := true; more; {
			resp := pieces.next()
			more = resp.Fragment
			wantEqual(t, "pieces: header", resp.Header.Revision, 6)
			wantEqual(t, "pieces: watcher", resp.WatchId, 0)
			if len(resp.Events) == 0 || len(resp.Events) == n {
				t.Errorf("a piece holds %d events of %d", len(resp.Events), n)
			}
			for _, e := range resp.Events {
				got = append(got, string(e.Kv.Key))
				wantEqual(t, "pieces: previous value", len(e.PrevKv.GetValue()), size)
			}
		}
		wantEqual(t, "pieces: keys", strings.Join(got, " "), "k0 k1 k2 k3")
	})
}

func TestWatchOrderAcrossRevisions(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		const n = 400
		w := s.watch()
		live := w.watchKey("k", "l", 2)
		var want []string
		for i := range n {
			key := fmt.Sprintf("k%d", i%7)
			resp := st.put(key, "v")
			want = append(want, fmt.Sprintf("%s@%d", key, resp.Header.Revision))
			if i == n/2 {
				// This one has to catch up while more arrives.
				w.request(&pb.WatchCreateRequest{Key: []byte("k"), RangeEnd: []byte("l"), StartRevision: 2, WatchId: 9})
			}
		}
		got := make(map[int64][]string)
		for _, resp := range w.until(n + 1) {
			for _, e := range resp.Events {
				if e.Kv.ModRevision > resp.Header.Revision {
					t.Errorf("event of revision %d in a response of revision %d", e.Kv.ModRevision, resp.Header.Revision)
				}
				got[resp.WatchId] = append(got[resp.WatchId], fmt.Sprintf("%s@%d", e.Kv.Key, e.Kv.ModRevision))
			}
		}
		wantEqual(t, "live", strings.Join(got[live], " "), strings.Join(want, " "))
		wantEqual(t, "catching up", strings.Join(got[9], " "), strings.Join(want, " "))
	})
}

func TestWatchProgressRequest(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		st.put("b", "1")
		w := s.watch()
		w.watchKey("a", "", 0)
		w.watchKey("x", "", 0)
		w.requestProgress()
		resp := w.next()
		wantEqual(t, "on behalf of all watchers", resp.WatchId, -1)
		wantEqual(t, "header", resp.Header.Revision, 3)
		wantEqual(t, "events", len(resp.Events), 0)
		wantEqual(t, "created", resp.Created, false)
		wantEqual(t, "canceled", resp.Canceled, false)
		wantEqual(t, "compact revision", resp.CompactRevision, 0)
		if h := resp.Header; h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
			t.Errorf("header is not filled: %v", h)
		}
		// Writes without a watcher still move it.
		st.put("b", "2")
		wantEqual(t, "events", len(w.eventsUntil(4)), 0)
		// etcd says nothing while a watcher of the stream starts in the future.
		// That is its choice and not asserted; from then on it answers again.
		w.watchKey("a", "", 6)
		w.requestProgress()
		st.put("b", "3")
		st.put("b", "4")
		wantEqual(t, "events", len(w.eventsUntil(6)), 0)
	})
}

// After a progress response, no event up to its revision may follow.
func TestNoEventFollowsItsProgressResponse(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		w.watchKey("k", "l", 2)
		const n = 300
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range n {
				if _, err := st.c.Put(s.context(), "k", ""); err != nil {
					t.Errorf("put: %v", err)
					return
				}
			}
		}()
		defer func() { <-done }()
		promised, last := int64(0), int64(1)
		for last < n+1 {
			w.requestProgress()
			resp := w.next()
			if isProgress(resp) {
				promised = max(promised, resp.Header.Revision)
				if promised > last {
					t.Fatalf("progress to %d, but events only up to %d so far", promised, last)
				}
				continue
			}
			for _, e := range resp.Events {
				if e.Kv.ModRevision <= promised || e.Kv.ModRevision != last+1 {
					t.Fatalf("event of revision %d after %d and a promise of %d", e.Kv.ModRevision, last, promised)
				}
				last = e.Kv.ModRevision
			}
		}
	})
}

func TestWatchProgressWithoutWatchers(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		w := s.watch()
		w.requestProgress()
		// etcd does not answer, which is not asserted; but the stream must still work.
		w.request(&pb.WatchCreateRequest{Key: []byte("a")})
		for {
			if w.next().Created {
				return
			}
		}
	})
}

func TestWatchByClientv3(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a/1", "x") // 2
		s.settle()
		ch := st.c.Watch(s.context(), "a/", clientv3.WithPrefix(), clientv3.WithRev(2), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
		first := <-ch
		wantEqual(t, "created", first.Created, true)
		st.put("a/1", "y") // 3
		st.delete("a/1")   // 4
		var got []string
		for len(got) < 3 {
			resp, ok := <-ch
			if !ok || resp.Err() != nil {
				t.Fatalf("watch ended: %v", resp.Err())
			}
			for _, e := range resp.Events {
				got = append(got, fmt.Sprintln(e.Type, string(e.Kv.Key), e.Kv.ModRevision, e.PrevKv != nil, e.IsCreate(), e.IsModify()))
			}
		}
		wantEqual(t, "events", strings.Join(got, ""), lines(
			"PUT a/1 2 false true false", "PUT a/1 3 true false true", "DELETE a/1 4 true false false", ""))
		eventually(t, waitLimit, "progress", func() bool {
			wantOK(t, "requesting progress", st.c.RequestProgress(s.context()))
			select {
			case resp := <-ch:
				wantEqual(t, "progress", resp.IsProgressNotify(), true)
				wantEqual(t, "header", resp.Header.Revision, 4)
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		})
	})
}

func TestWatchStreamEndsWithItsClient(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		id := w.watchKey("a", "", 0)
		wantOK(t, "closing the sending side", w.stream.CloseSend())
		// A client that has nothing more to say may still listen.
		st.put("a", "1")
		resp := w.next()
		wantEqual(t, "watcher", resp.WatchId, id)
		wantEqual(t, "event", showEvents(resp.Events), "PUT a=1 c2 m2 v1")
	})
}
