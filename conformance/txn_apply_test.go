package conformance

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const textFutureRevision = "etcdserver: mvcc: required revision is a future revision"

func TestTxnRevisions(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		for _, c := range []struct {
			what string
			req  *pb.TxnRequest
			want int64
		}{
			{"nothing at all", &pb.TxnRequest{}, 1},
			{"a read", then(opRange("a", "")), 1},
			{"a delete of nothing", then(opDelete("a", "z")), 1},
			{"an empty nested txn", then(opTxn(&pb.TxnRequest{})), 1},
			{"two puts are one write", then(opPut("a", "1"), opPut("b", "1")), 2},
			{"a put in a branch not taken", when(isMissing("a"), ops(opPut("a", "2")), nil), 2},
			{"a put of the same", then(opPut("a", "1")), 3},
			{"a read and a delete of nothing", then(opRange("a", ""), opDelete("x", "")), 3},
			{"puts and deletes", then(opPut("c", "1"), opDelete("a", ""), opPut("d", "1")), 4},
			{"deep inside", then(opTxn(then(opTxn(then(opPut("e", "1")))))), 5},
			{"a put in a nested branch not taken", then(opTxn(when(isMissing("e"), ops(opPut("f", "1")), nil))), 5},
		} {
			resp := st.txn(c.req)
			wantEqual(t, c.what+": header", resp.Header.Revision, c.want)
			wantEqual(t, c.what+": revision", st.revision(), c.want)
			if h := resp.Header; h.ClusterId == 0 || h.MemberId == 0 || h.RaftTerm == 0 {
				t.Errorf("%s: header is not filled: %v", c.what, h)
			}
		}
		wantEqual(t, "in the end", st.all(), lines("b=1 c2 m2 v1", "c=1 c4 m4 v1", "d=1 c4 m4 v1", "e=1 c5 m5 v1"))
	})
}

// The headers of answers inside a txn have only the revision of the store at that
// point. Those of nested txns have not even that.
func TestTxnInnerHeaders(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("x", "") // 2
		resp := st.txn(then(opRange("x", ""), opDelete("none", ""), opPut("a", "1"), opRange("x", ""), opDelete("x", ""), opTxn(then(opPut("b", "1")))))
		r := resp.Responses
		inner := r[5].GetResponseTxn()
		for _, c := range []struct {
			what   string
			header *pb.ResponseHeader
			want   int64
		}{
			{"read before", r[0].GetResponseRange().Header, 2},
			{"delete of nothing before", r[1].GetResponseDeleteRange().Header, 2},
			{"put", r[2].GetResponsePut().Header, 3},
			{"read after", r[3].GetResponseRange().Header, 3},
			{"delete", r[4].GetResponseDeleteRange().Header, 3},
			{"nested txn", inner.Header, 0},
			{"put inside it", inner.Responses[0].GetResponsePut().Header, 3},
		} {
			if c.header == nil {
				t.Errorf("%s: no header", c.what)
				continue
			}
			wantEqual(t, c.what, c.header.Revision, c.want)
			wantEqual(t, c.what+": identity", *s.identity(c.header), identityFields{})
		}
	})
}

func TestTxnReadsSeeEarlierWrites(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("a", "old") // 2
		st.put("b", "old") // 3
		resp := st.txn(then(
			opRange("a", "z"),
			opPutRequest(&pb.PutRequest{Key: []byte("a"), Value: []byte("new"), PrevKv: true}),
			opRange("a", "z"),
			opPut("c", "new"),
			opDelete("b", ""),
			opDelete("b", "c"),
			opRange("a", "z"),
			opRangeRequest(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Revision: 3}),
			opRangeRequest(&pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z"), Limit: 1, SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_DESCEND}),
			opTxn(then(opRange("c", ""))),
		)) // 4
		for i, want := range []string{
			"2: a=old c2 m2 v1, b=old c3 m3 v1",
			"put over a=old c2 m2 v1",
			"2: a=new c2 m4 v2, b=old c3 m3 v1",
			"put",
			"deleted 1: b=old c3 m3 v1",
			"deleted 0: ",
			"2: a=new c2 m4 v2, c=new c4 m4 v1",
			"2: a=old c2 m2 v1, b=old c3 m3 v1",
			"2: c=new c4 m4 v1",
			"then [1: c=new c4 m4 v1]",
		} {
			wantEqual(t, fmt.Sprintf("operation %d", i), showOp(resp.Responses[i]), want)
		}
	})
}

func TestTxnEventsAreInTheOrderOfOperations(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("b/1", "old") // 2
		st.put("b/2", "old") // 3
		live := s.watch()
		live.create(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: true})
		st.txn(then(opPut("c", "1"), opDelete("b/", "b0"), opTxn(then(opPut("a", "1"))), opPut("d", "1"))) // 4
		past := s.watch()
		past.create(&pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: true, StartRevision: 4})
		for what, w := range map[string]*watchStream{"live": live, "from the past": past} {
			resp := w.next()
			wantEqual(t, what+": one response", showEvents(resp.Events), lines(
				"PUT c=1 c4 m4 v1",
				"DELETE b/1= c0 m4 v0 before: b/1=old c2 m2 v1",
				"DELETE b/2= c0 m4 v0 before: b/2=old c3 m3 v1",
				"PUT a=1 c4 m4 v1",
				"PUT d=1 c4 m4 v1"))
			wantEqual(t, what+": header", resp.Header.Revision, 4)
		}
	})
}

// All conditions, the nested ones too, look at the state before the txn.
func TestTxnNestedComparesSeeTheStateBefore(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		st.put("old", "1") // 2
		resp := st.txn(then(
			opPut("new", "1"),
			opDelete("old", ""),
			opTxn(when(isMissing("new"), ops(opRange("new", "")), ops(opPut("wrong1", "")))),
			opTxn(when(isThere("old"), ops(opRange("old", "")), ops(opPut("wrong2", "")))),
			opTxn(when(isThere("new"), ops(opPut("wrong3", "")), ops(
				opTxn(when(compareValue("old", pb.Compare_EQUAL, "1"), ops(opPut("deep", "1")), ops(opPut("wrong4", "")))),
				opTxn(when(isMissing("old"), ops(opPut("wrong5", "")), ops(opRange("deep", "")))),
			))),
			opTxn(when(isMissing("deep"), nil, ops(opPut("wrong6", "")))),
			opRange("deep", ""),
		)) // 3
		wantEqual(t, "answers", showTxn(resp), "then [put; deleted 1: old=1 c2 m2 v1; "+
			"then [1: new=1 c3 m3 v1]; then [0: ]; else [then [put]; else [1: deep=1 c3 m3 v1]]; then []; 1: deep=1 c3 m3 v1]")
		wantEqual(t, "store", st.all(), lines("deep=1 c3 m3 v1", "new=1 c3 m3 v1"))
	})
}

func TestTxnLeases(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		lease := st.grant(60).ID
		leased := func(key string, id int64) *pb.RequestOp {
			return opPutRequest(&pb.PutRequest{Key: []byte(key), Lease: id})
		}
		unknown := leased("bad", 99)
		for what, req := range map[string]*pb.TxnRequest{
			"last":                    then(opPut("a", "1"), unknown),
			"first":                   then(unknown, opPut("a", "1")),
			"else":                    when(isThere("x"), nil, ops(opPut("a", "1"), unknown)),
			"nested":                  then(opPut("a", "1"), opTxn(then(opTxn(then(unknown))))),
			"second of two nested":    then(opTxn(then(opPut("a", "1"))), opTxn(when(isThere("x"), nil, ops(unknown)))),
			"beside a missing key":    then(unknown, opPutRequest(&pb.PutRequest{Key: []byte("x"), IgnoreValue: true})),
			"on the same operation":   then(opPutRequest(&pb.PutRequest{Key: []byte("x"), IgnoreValue: true, Lease: 99})),
			"beside a future reading": then(unknown, opRangeRequest(&pb.RangeRequest{Key: []byte("a"), Revision: 99})),
		} {
			_, err := kv.Txn(s.context(), req)
			wantStatus(t, "unknown lease: "+what, err, codes.NotFound, textLeaseNotFound)
		}
		wantEqual(t, "refused as a whole", st.all(), "")
		wantEqual(t, "no write", st.revision(), 1)

		st.txn(when(isThere("x"), ops(unknown), ops(opPut("a", "1"))))                        // 2
		st.txn(then(opTxn(when(isThere("a"), nil, ops(unknown))), leased("b", int64(lease)))) // 3
		wantEqual(t, "a branch not taken does no harm", st.all(), lines(
			"a=1 c2 m2 v1", fmt.Sprintf("b= c3 m3 v1 lease %x", int64(lease))))
		st.revoke(lease)
		wantEqual(t, "what a txn attached ends with the lease", st.all(), "a=1 c2 m2 v1")
	})
}

func TestTxnIgnoreValueAndLease(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		lease := st.grant(60).ID
		st.put("a", "1", clientv3.WithLease(lease)) // 2
		keepValue := func(key string) *pb.RequestOp {
			return opPutRequest(&pb.PutRequest{Key: []byte(key), IgnoreValue: true})
		}
		keepLease := func(key string) *pb.RequestOp {
			return opPutRequest(&pb.PutRequest{Key: []byte(key), Value: []byte("2"), IgnoreLease: true})
		}
		st.txn(then(keepLease("a"))) // 3
		wantEqual(t, "lease kept", st.all(), fmt.Sprintf("a=2 c2 m3 v2 lease %x", int64(lease)))
		st.txn(then(keepValue("a"))) // 4
		wantEqual(t, "value kept, lease gone", st.all(), "a=2 c2 m4 v3")
		for what, req := range map[string]*pb.TxnRequest{
			"value":  then(opPut("b", "1"), keepValue("x")),
			"lease":  then(opPut("b", "1"), keepLease("x")),
			"nested": then(opPut("b", "1"), opTxn(then(keepLease("x")))),
		} {
			_, err := kv.Txn(s.context(), req)
			wantStatus(t, "key not there: "+what, err, codes.InvalidArgument, textKeyNotFound)
		}
		st.txn(when(isThere("a"), ops(opRange("a", "")), ops(keepValue("x"))))
		wantEqual(t, "refused as a whole, or not taken", st.revision(), 4)
	})
}

func TestTxnReadsOfOtherRevisions(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		st.put("a", "1") // 2
		st.put("a", "2") // 3
		at := func(revision int64) *pb.RequestOp {
			return opRangeRequest(&pb.RangeRequest{Key: []byte("a"), Revision: revision})
		}
		wantEqual(t, "the past", showTxn(st.txn(then(at(2), at(1), at(3)))), "then [1: a=1 c2 m2 v1; 0: ; 1: a=2 c2 m3 v2]")
		// Not even the revision that the txn itself will make.
		for _, req := range []*pb.TxnRequest{
			then(at(4)), then(opPut("a", "3"), at(4)), then(opPut("a", "3"), opTxn(then(at(4)))), then(opPut("a", "3"), at(1<<63-1)),
		} {
			_, err := kv.Txn(s.context(), req)
			wantStatus(t, "the future", err, codes.OutOfRange, textFutureRevision)
		}
		wantEqual(t, "a future not taken", showTxn(st.txn(when(isThere("a"), nil, ops(at(9))))), "then []")
		wantEqual(t, "refused as a whole", st.revision(), 3)
	})
}

func TestTxnOfDeletesThatOverlap(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		for _, k := range []string{"a", "b", "c", "d"} {
			st.put(k, "") // 2 to 5
		}
		resp := st.txn(then(opDelete("b", ""), opDelete("a", "c"), opTxn(then(opDelete("a", "d"))), opDelete("a", "")))
		wantEqual(t, "each deletes what is left", showTxn(resp),
			"then [deleted 1: b= c3 m3 v1; deleted 1: a= c2 m2 v1; then [deleted 1: c= c4 m4 v1]; deleted 0: ]")
		wantEqual(t, "left", st.all(), "d= c5 m5 v1")
		wantEqual(t, "one write", st.revision(), 6)
	})
}
