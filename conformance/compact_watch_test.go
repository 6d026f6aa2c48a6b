package conformance

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestWatchBelowACompaction(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		for _, v := range []string{"1", "2", "3", "4"} {
			st.put("a", v) // 2 to 5
		}
		st.compact(4)
		w := s.watch()
		for id, from := range map[int64]int64{7: 3, 8: 1} {
			// It is created first, and canceled by itself.
			resp := w.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: from, WatchId: id})
			wantEqual(t, "created: id", resp.WatchId, id)
			wantEqual(t, "created: canceled", resp.Canceled, false)
			wantEqual(t, "created: compact revision", resp.CompactRevision, 0)
			resp = w.next()
			wantEqual(t, "canceled", resp.Canceled, true)
			wantEqual(t, "created", resp.Created, false)
			wantEqual(t, "id", resp.WatchId, id)
			wantEqual(t, "compact revision", resp.CompactRevision, 4)
			wantEqual(t, "reason", resp.CancelReason, "")
			wantEqual(t, "events", len(resp.Events), 0)
			wantEqual(t, "identity", *s.identity(resp.Header), *s.identity(st.get("a").Header))
		}
		// The stream stays open, and those watchers receive no more. (etcd no longer
		// answers requests for progress on such a stream until the client has
		// canceled them too. That is not asserted.)
		id := w.watchKey("a", "", 4)
		var got string
		for got != lines("PUT a=3 c2 m4 v3", "PUT a=4 c2 m5 v4", "") && !t.Failed() {
			resp := w.next()
			wantEqual(t, "from the compacted revision itself: id", resp.WatchId, id)
			got += showEvents(resp.Events) + "\n"
		}
	})
}

func TestWatchBelowACompactionByClientv3(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		for range 4 {
			st.put("a", "") // 2 to 5
		}
		st.compact(4)
		s.settle()
		ch := st.c.Watch(s.context(), "a", clientv3.WithRev(2))
		resp := <-ch
		wantIs(t, "error", resp.Err(), rpctypes.ErrCompacted)
		wantEqual(t, "compact revision", resp.CompactRevision, 4)
		_, open := <-ch
		wantEqual(t, "the channel is open", open, false)
		// The client's way on: from there.
		s.settle()
		ch = st.c.Watch(s.context(), "a", clientv3.WithRev(resp.CompactRevision))
		wantEqual(t, "events", showClientEvents((<-ch).Events[:1]), "PUT a= c2 m4 v3")
	})
}

func TestCompactUnderWatchers(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		w := s.watch()
		watcher := w.watchKey("a", "", 2)
		future := w.watchKey("a", "", 6)
		st.put("a", "1") // 2
		st.delete("a")   // 3
		st.put("a", "2") // 4
		st.compact(4)
		st.put("a", "3") // 5
		st.compact(5)
		st.put("a", "4") // 6
		st.compact(6)
		events := w.eventsUntil(6)
		wantEqual(t, "who keeps up loses nothing", events[watcher], lines(
			"PUT a=1 c2 m2 v1", "DELETE a= c0 m3 v0", "PUT a=2 c4 m4 v1", "PUT a=3 c4 m5 v2", "PUT a=4 c4 m6 v3"))
		wantEqual(t, "who waits for the future neither", events[future], "PUT a=4 c4 m6 v3")
	})
}

func TestCompactAndPreviousValues(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		for _, v := range []string{"1", "2", "3", "4"} {
			st.put("a", v) // 2 to 5
		}
		st.compact(3)
		w := s.watch()
		id := w.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 3, PrevKv: true}).WatchId
		wantEqual(t, "what was compacted is left out", w.eventsUntil(5)[id], lines(
			"PUT a=2 c2 m3 v2",
			"PUT a=3 c2 m4 v3 before: a=2 c2 m3 v2",
			"PUT a=4 c2 m5 v4 before: a=3 c2 m4 v3"))
	})
}

// A watch from the compacted revision still sees what happened at it.
func TestWatchFromACompactedDelete(t *testing.T) {
	withCompact(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1") // 2
		st.put("b", "1") // 3
		st.delete("a")   // 4
		st.compact(4)
		st.put("b", "2") // 5
		w := s.watch()
		id := w.watchKey("a", "z", 4)
		wantEqual(t, "events", w.eventsUntil(5)[id], lines("DELETE a= c0 m4 v0", "PUT b=2 c3 m5 v2"))
	})
}

// showClientEvents is showEvents for what clientv3 delivers.
func showClientEvents(events []*clientv3.Event) string {
	wire := make([]*mvccpb.Event, 0, len(events))
	for _, e := range events {
		wire = append(wire, (*mvccpb.Event)(e))
	}
	return showEvents(wire)
}
