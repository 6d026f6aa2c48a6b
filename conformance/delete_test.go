package conformance

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestDeleteIntervals(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		for _, c := range []struct {
			what, key, end string
			deleted        int64
			left           string
		}{
			{"one key", "a", "", 1, "a/1 a/2 b c"},
			{"prefix", "a/", "a0", 2, "a b c"},
			{"half open", "a", "b", 3, "b c"},
			{"from a key", "a/2", "\x00", 3, "a a/1"},
			{"everything", "\x00", "\x00", 5, ""},
			{"no such key", "x", "", 0, "a a/1 a/2 b c"},
			{"end before key", "c", "a", 0, "a a/1 a/2 b c"},
			{"end equal to key", "a", "a", 0, "a a/1 a/2 b c"},
		} {
			for _, k := range []string{"a", "a/1", "a/2", "b", "c"} {
				st.put(k, "")
			}
			before := st.revision()
			resp, err := kv.DeleteRange(s.context(), &pb.DeleteRangeRequest{Key: []byte(c.key), RangeEnd: []byte(c.end)})
			wantOK(t, c.what, err)
			wantEqual(t, c.what+": deleted", resp.Deleted, c.deleted)
			wantEqual(t, c.what+": previous values nobody asked for", len(resp.PrevKvs), 0)
			wantEqual(t, c.what+": left", keys(st.get("\x00", clientv3.WithFromKey()).Kvs), c.left)
			// However many keys went, it was one write, or none.
			after := before
			if c.deleted > 0 {
				after++
			}
			wantEqual(t, c.what+": header", resp.Header.Revision, after)
			wantEqual(t, c.what+": revision", st.revision(), after)
		}
	})
}

func TestDeletePrevKVs(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("b", "1") // 2
		st.put("a", "1") // 3
		st.put("b", "2") // 4
		resp := st.delete("a", clientv3.WithFromKey(), clientv3.WithPrevKV())
		wantEqual(t, "in key order, as they were", show(resp.PrevKvs...), lines("a=1 c3 m3 v1", "b=2 c2 m4 v2"))
		wantEqual(t, "deleted", resp.Deleted, 2)
		resp = st.delete("a", clientv3.WithFromKey(), clientv3.WithPrevKV())
		wantEqual(t, "nothing left", show(resp.PrevKvs...), "")
		wantEqual(t, "deleted", resp.Deleted, 0)
		wantEqual(t, "revision", resp.Header.Revision, 5)
	})
}

func TestDeletedKeysRemainInThePast(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		st.delete("a")
		wantEqual(t, "now", show(st.get("a").Kvs...), "")
		wantEqual(t, "then", show(st.get("a", clientv3.WithRev(2)).Kvs...), "a=1 c2 m2 v1")
		wantEqual(t, "count then", st.get("a", clientv3.WithRev(2), clientv3.WithCountOnly()).Count, 1)
	})
}
