package conformance

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

func TestRangeIntervals(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		for _, k := range []string{"\x00", "a", "a\x00", "a/1", "a/2", "b", "c", "\xff", "\xff\xff"} {
			st.put(k, "")
		}
		for _, c := range []struct{ what, key, end, want string }{
			{"one key", "a", "", "a"},
			{"no such key", "ab", "", ""},
			{"the smallest key", "\x00", "", "\x00"},
			{"half open", "a", "c", "a a\x00 a/1 a/2 b"},
			{"only the next possible key", "a", "a\x00", "a"},
			{"bounds that are no keys", "a0", "bb", "b"},
			{"prefix", "a/", "a0", "a/1 a/2"},
			{"from a key", "b", "\x00", "b c \xff \xff\xff"},
			{"from a key that is not there", "bb", "\x00", "c \xff \xff\xff"},
			{"everything", "\x00", "\x00", "\x00 a a\x00 a/1 a/2 b c \xff \xff\xff"},
			{"end equal to key", "a", "a", ""},
			{"end before key", "c", "a", ""},
			{"end is not the end of all keys", "c", "\xff", "c"},
		} {
			resp, err := kv.Range(s.context(), &pb.RangeRequest{Key: []byte(c.key), RangeEnd: []byte(c.end)})
			wantOK(t, c.what, err)
			wantEqual(t, c.what, keys(resp.Kvs), c.want)
			wantEqual(t, c.what+": count", resp.Count, int64(len(resp.Kvs)))
			wantEqual(t, c.what+": more", resp.More, false)
		}
	})
}

func TestRangeOfAnEmptyStore(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		resp := s.store().get("\x00", clientv3.WithFromKey())
		wantEqual(t, "keys", keys(resp.Kvs), "")
		wantEqual(t, "count", resp.Count, 0)
		wantEqual(t, "revision", resp.Header.Revision, 1)
		if resp.Header.ClusterId == 0 || resp.Header.MemberId == 0 || resp.Header.RaftTerm == 0 {
			t.Errorf("header is not filled: %v", resp.Header)
		}
	})
}

func TestRangeAtRevision(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		st.put("a", "1")   // 2
		st.put("b", "1")   // 3
		st.put("a", "2")   // 4
		st.delete("b")     // 5
		st.put("b", "new") // 6
		for _, c := range []struct {
			revision int64
			want     string
		}{
			{1, ""},
			{2, "a=1 c2 m2 v1"},
			{3, lines("a=1 c2 m2 v1", "b=1 c3 m3 v1")},
			{4, lines("a=2 c2 m4 v2", "b=1 c3 m3 v1")},
			{5, "a=2 c2 m4 v2"},
			{6, lines("a=2 c2 m4 v2", "b=new c6 m6 v1")},
			{0, lines("a=2 c2 m4 v2", "b=new c6 m6 v1")},
			{-1, lines("a=2 c2 m4 v2", "b=new c6 m6 v1")},
			{-1 << 63, lines("a=2 c2 m4 v2", "b=new c6 m6 v1")},
		} {
			resp, err := kv.Range(s.context(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Revision: c.revision})
			wantOK(t, "range", err)
			wantEqual(t, "at a revision", show(resp.Kvs...), c.want)
			// The header has the store's revision, not that of the read.
			wantEqual(t, "header", resp.Header.Revision, 6)
			wantEqual(t, "count", resp.Count, int64(len(resp.Kvs)))
		}
		for _, req := range []*pb.RangeRequest{
			{Key: []byte("a"), Revision: 7},
			{Key: []byte("a"), Revision: 7, CountOnly: true},
			{Key: []byte("a"), Revision: 7, KeysOnly: true},
			{Key: []byte("a"), Revision: 1<<63 - 1, Serializable: true},
			{Key: []byte("absent"), Revision: 7},
		} {
			_, err := kv.Range(s.context(), req)
			wantStatus(t, "in the future", err, codes.OutOfRange, "etcdserver: mvcc: required revision is a future revision")
		}
	})
}

func TestRangeLimitMoreAndCount(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		for _, k := range []string{"a", "b", "c", "d", "e"} {
			st.put(k, "v-"+k) // 2 to 6
		}
		for _, c := range []struct {
			what string
			req  *pb.RangeRequest
			want string
			more bool
		}{
			{"no limit", &pb.RangeRequest{}, "a b c d e", false},
			{"two", &pb.RangeRequest{Limit: 2}, "a b", true},
			{"all but one", &pb.RangeRequest{Limit: 4}, "a b c d", true},
			{"as many as there are", &pb.RangeRequest{Limit: 5}, "a b c d e", false},
			{"more than there are", &pb.RangeRequest{Limit: 9}, "a b c d e", false},
			{"the largest limit", &pb.RangeRequest{Limit: 1<<63 - 1}, "a b c d e", false},
			{"negative limit is none", &pb.RangeRequest{Limit: -1}, "a b c d e", false},
			{"limit after sorting", &pb.RangeRequest{Limit: 2, SortOrder: pb.RangeRequest_DESCEND}, "e d", true},
			{"limit after filtering", &pb.RangeRequest{Limit: 2, MinModRevision: 4}, "c d", true},
			{"filter leaves as many as the limit", &pb.RangeRequest{Limit: 2, MinModRevision: 5}, "d e", false},
			{"limit with keys only", &pb.RangeRequest{Limit: 2, KeysOnly: true}, "a b", true},
			{"limit in the past", &pb.RangeRequest{Limit: 2, Revision: 4}, "a b", true},
		} {
			c.req.Key, c.req.RangeEnd = []byte("a"), []byte("z")
			resp, err := kv.Range(s.context(), c.req)
			wantOK(t, c.what, err)
			wantEqual(t, c.what, keys(resp.Kvs), c.want)
			wantEqual(t, c.what+": more", resp.More, c.more)
			// The count is of the interval at that revision, whatever was left out.
			count := int64(5)
			if c.req.Revision == 4 {
				count = 3
			}
			wantEqual(t, c.what+": count", resp.Count, count)
		}
	})
}

func TestRangeCountOnlyAndKeysOnly(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		for _, k := range []string{"a", "b", "c"} {
			st.put(k, "v-"+k) // 2 to 4
		}
		for _, c := range []struct {
			req  *pb.RangeRequest
			want int64
		}{
			{&pb.RangeRequest{}, 3},
			{&pb.RangeRequest{Limit: 1}, 3},
			{&pb.RangeRequest{KeysOnly: true}, 3},
			{&pb.RangeRequest{Revision: 3}, 2},
			{&pb.RangeRequest{MinModRevision: 100}, 3},
			{&pb.RangeRequest{SortTarget: pb.RangeRequest_VALUE, SortOrder: pb.RangeRequest_DESCEND}, 3},
		} {
			c.req.Key, c.req.RangeEnd, c.req.CountOnly = []byte("a"), []byte("z"), true
			resp, err := kv.Range(s.context(), c.req)
			wantOK(t, "count", err)
			wantEqual(t, "count", resp.Count, c.want)
			wantEqual(t, "keys beside a count", len(resp.Kvs), 0)
			wantEqual(t, "more beside a count", resp.More, false)
		}
		resp := st.get("a", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		wantEqual(t, "keys only", show(resp.Kvs...), "a= c2 m2 v1")
		// Sorting by a value that is not sent still sorts by it.
		st.put("a", "z")
		resp = st.get("a", clientv3.WithFromKey(), clientv3.WithKeysOnly(), clientv3.WithSort(clientv3.SortByValue, clientv3.SortAscend))
		wantEqual(t, "keys only, by value", show(resp.Kvs...), lines("b= c3 m3 v1", "c= c4 m4 v1", "a= c2 m5 v2"))
	})
}

func TestRangeSorts(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		st.put("b", "2") // created 2
		st.put("a", "3") // created 3, version 1
		st.put("c", "x") // created 4
		st.put("c", "x")
		st.put("c", "1") // modified 6, version 3
		st.put("b", "2") // modified 7, version 2
		const none, up, down = pb.RangeRequest_NONE, pb.RangeRequest_ASCEND, pb.RangeRequest_DESCEND
		for _, c := range []struct {
			target pb.RangeRequest_SortTarget
			order  pb.RangeRequest_SortOrder
			want   string
		}{
			{pb.RangeRequest_KEY, none, "a b c"},
			{pb.RangeRequest_KEY, up, "a b c"},
			{pb.RangeRequest_KEY, down, "c b a"},
			{pb.RangeRequest_VERSION, none, "a b c"},
			{pb.RangeRequest_VERSION, up, "a b c"},
			{pb.RangeRequest_VERSION, down, "c b a"},
			{pb.RangeRequest_CREATE, none, "b a c"},
			{pb.RangeRequest_CREATE, up, "b a c"},
			{pb.RangeRequest_CREATE, down, "c a b"},
			{pb.RangeRequest_MOD, none, "a c b"},
			{pb.RangeRequest_MOD, up, "a c b"},
			{pb.RangeRequest_MOD, down, "b c a"},
			{pb.RangeRequest_VALUE, none, "c b a"},
			{pb.RangeRequest_VALUE, up, "c b a"},
			{pb.RangeRequest_VALUE, down, "a b c"},
		} {
			resp, err := kv.Range(s.context(), &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), SortTarget: c.target, SortOrder: c.order})
			wantOK(t, "sorted range", err)
			wantEqual(t, c.target.String()+" "+c.order.String(), keys(resp.Kvs), c.want)
		}
		for _, req := range []*pb.RangeRequest{
			{Key: []byte("a"), SortOrder: 3},
			{Key: []byte("a"), SortTarget: 5},
			{Key: []byte("a"), SortOrder: -1},
		} {
			_, err := kv.Range(s.context(), req)
			wantStatus(t, "unknown sort", err, codes.InvalidArgument, "etcdserver: invalid sort option")
		}
	})
}

func TestRangeRevisionFilters(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		st.put("a", "") // created 2
		st.put("b", "") // created 3
		st.put("c", "") // created 4
		st.put("a", "") // modified 5
		for _, c := range []struct {
			what string
			req  *pb.RangeRequest
			want string
		}{
			{"min mod", &pb.RangeRequest{MinModRevision: 4}, "a c"},
			{"max mod", &pb.RangeRequest{MaxModRevision: 4}, "b c"},
			{"both mods", &pb.RangeRequest{MinModRevision: 4, MaxModRevision: 4}, "c"},
			{"min create", &pb.RangeRequest{MinCreateRevision: 3}, "b c"},
			{"max create", &pb.RangeRequest{MaxCreateRevision: 3}, "a b"},
			{"both creates", &pb.RangeRequest{MinCreateRevision: 3, MaxCreateRevision: 3}, "b"},
			{"mod and create", &pb.RangeRequest{MinModRevision: 4, MaxCreateRevision: 3}, "a"},
			{"nothing left", &pb.RangeRequest{MinModRevision: 6}, ""},
			{"negative max is a bound like any", &pb.RangeRequest{MaxModRevision: -1}, ""},
			{"newest creation up to a revision, as a lock asks", &pb.RangeRequest{
				MaxCreateRevision: 3, SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_DESCEND, Limit: 1,
			}, "b"},
		} {
			c.req.Key, c.req.RangeEnd = []byte("a"), []byte("z")
			resp, err := kv.Range(s.context(), c.req)
			wantOK(t, c.what, err)
			wantEqual(t, c.what, keys(resp.Kvs), c.want)
			wantEqual(t, c.what+": count", resp.Count, 3)
		}
	})
}

func TestRangeSerializable(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "1")
		s.settle()
		resp := st.get("a", clientv3.WithSerializable())
		wantEqual(t, "serializable read", show(resp.Kvs...), "a=1 c2 m2 v1")
		wantEqual(t, "revision", resp.Header.Revision, 2)
		resp = st.get("a", clientv3.WithSerializable(), clientv3.WithRev(1))
		wantEqual(t, "serializable read of the past", show(resp.Kvs...), "")
	})
}

func TestRequestsThatRequireALeader(t *testing.T) {
	eachTarget(t, func(t *testing.T, s *server) {
		c := s.client()
		ctx := clientv3.WithRequireLeader(s.context())
		_, err := c.Put(ctx, "a", "1")
		wantOK(t, "put", err)
		resp, err := c.Get(ctx, "a")
		wantOK(t, "get", err)
		wantEqual(t, "read", show(resp.Kvs...), "a=1 c2 m2 v1")
		w := s.watchIn(ctx)
		id := w.watchKey("a", "", 2)
		wantEqual(t, "watched", w.eventsUntil(2)[id], "PUT a=1 c2 m2 v1")
	})
}
