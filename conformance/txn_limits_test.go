package conformance

import (
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
)

const (
	textTooManyOps   = "etcdserver: too many operations in txn request"
	textDuplicateKey = "etcdserver: duplicate key given in txn request"
)

// maxOps is how many conditions, and how many operations a branch, a txn may have.
const maxOps = 128

func puts(n int) []*pb.RequestOp {
	out := make([]*pb.RequestOp, n)
	for i := range out {
		out[i] = opPut(fmt.Sprintf("key%03d", i), "")
	}
	return out
}

func compares(n int) []*pb.Compare {
	out := make([]*pb.Compare, n)
	for i := range out {
		out[i] = isMissing("x")
	}
	return out
}

func TestTxnLimits(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		// depth is a txn in a txn and so on, n in all, around one put.
		depth := func(n int) *pb.TxnRequest {
			req := then(opPut("deep", ""))
			for range n - 1 {
				req = then(opTxn(req))
			}
			return req
		}
		for what, req := range map[string]*pb.TxnRequest{
			"conditions":             {Compare: compares(maxOps)},
			"success":                {Success: puts(maxOps)},
			"failure":                {Failure: puts(maxOps)},
			"all three":              {Compare: compares(maxOps), Success: puts(maxOps), Failure: puts(maxOps)},
			"one and nested":         then(opTxn(then(puts(maxOps - 1)...))),
			"two nested, each alone": then(opTxn(then(puts(maxOps-2)...)), opTxn(&pb.TxnRequest{Compare: compares(maxOps - 2)})),
			"nested conditions":      then(opTxn(&pb.TxnRequest{Compare: compares(maxOps - 1)})),
			"depth":                  depth(maxOps),
		} {
			_, err := kv.Txn(s.context(), req)
			wantOK(t, "as many as allowed: "+what, err)
		}
		before := st.revision()
		full := &pb.TxnRequest{Compare: compares(maxOps), Success: ops(opTxn(then(opPut("a", ""))))}
		for what, req := range map[string]*pb.TxnRequest{
			"conditions":          {Compare: compares(maxOps + 1)},
			"success":             {Success: puts(maxOps + 1)},
			"failure":             {Failure: puts(maxOps + 1)},
			"nested":              then(opTxn(then(puts(maxOps)...))),
			"nested in failure":   {Failure: ops(opTxn(&pb.TxnRequest{Failure: puts(maxOps)}))},
			"a branch not taken":  when(isMissing("x"), nil, puts(maxOps+1)),
			"conditions take all": full,
			"two outside":         then(opPut("a", ""), opTxn(then(puts(maxOps-1)...))),
			"depth":               depth(maxOps + 1),
			"counted before keys": {Success: append(puts(maxOps), opPut("", ""))},
			"and before overlaps": {Success: append(puts(maxOps), opPut("key000", ""))},
		} {
			_, err := kv.Txn(s.context(), req)
			wantStatus(t, "one too many: "+what, err, codes.InvalidArgument, textTooManyOps)
		}
		wantEqual(t, "refused as a whole", st.revision(), before)
	})
}

func TestTxnDuplicateKeys(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		a := opPut("a", "")
		for _, c := range []struct {
			what string
			req  *pb.TxnRequest
		}{
			{"twice", then(a, a)},
			{"in a branch that is not taken", when(isMissing("x"), nil, ops(a, a))},
			{"outside and nested", then(a, opTxn(then(a)))},
			{"nested and outside", then(opTxn(then(a)), a)},
			{"outside and in a nested failure", then(a, opTxn(&pb.TxnRequest{Failure: ops(a)}))},
			{"in two nested", then(opTxn(then(a)), opTxn(then(a)))},
			{"in different branches of two nested", then(opTxn(then(a)), opTxn(&pb.TxnRequest{Failure: ops(a)}))},
			{"in two nested deep", then(opTxn(then(opTxn(then(a)))), opTxn(then(opTxn(then(a)))))},
			{"put and deleted", then(a, opDelete("a", ""))},
			{"deleted and put", then(opDelete("a", ""), a)},
			{"inside a deleted interval", then(opDelete("A", "b"), a)},
			{"at the start of a deleted interval", then(a, opDelete("a", "b"))},
			{"inside one of several intervals", then(opDelete("x", "z"), opDelete("0", "9"), opDelete("a", "aa"), a)},
			{"deleted outside, put nested", then(opDelete("a", "b"), opTxn(then(a)))},
			{"deleted outside, put in a nested failure", then(opDelete("a", "b"), opTxn(&pb.TxnRequest{Failure: ops(a)}))},
			{"put nested, deleted outside", then(opTxn(then(a)), opDelete("a", "b"))},
			{"deleted nested, put outside", then(opTxn(then(opDelete("a", "b"))), a)},
			{"put outside, deleted nested", then(a, opTxn(then(opDelete("a", "b"))))},
			{"deleted nested, then put nested", then(opTxn(then(opDelete("a", "b"))), opTxn(then(a)))},
		} {
			_, err := kv.Txn(s.context(), c.req)
			wantStatus(t, c.what, err, codes.InvalidArgument, textDuplicateKey)
		}
		wantEqual(t, "refused as a whole", st.revision(), 1)
	})
}

func TestTxnKeysThatAreNoDuplicates(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st := s.store()
		a := opPut("a", "")
		for i, c := range []struct {
			what string
			req  *pb.TxnRequest
		}{
			{"in both branches", &pb.TxnRequest{Success: ops(a), Failure: ops(a)}},
			{"in both branches of a nested txn", then(opTxn(&pb.TxnRequest{Success: ops(a), Failure: ops(a)}))},
			{"put in one branch, deleted in the other", &pb.TxnRequest{Success: ops(a), Failure: ops(opDelete("a", "b"))}},
			{"put in one nested branch, deleted in the other", then(opTxn(&pb.TxnRequest{Success: ops(a), Failure: ops(opDelete("a", "b"))}))},
			{"the end of a deleted interval is not deleted", then(opDelete("0", "a"), a)},
			{"a prefix is another key", then(opPut("aa", ""), a, opDelete("aaa", ""))},
			{"put and read", then(a, opRange("a", "b"), opTxn(then(opRange("a", ""))))},
			{"end before key deletes nothing", then(opDelete("b", "a"), a)},
		} {
			resp := st.txn(c.req)
			wantEqual(t, c.what, resp.Header.Revision, int64(i+2))
		}
	})
}

// etcd overlooks two kinds of overlap: with a delete without an upper end, and of
// a nested put with a delete in a later nested txn. A server may refuse them as
// it does the others; if it takes them, it has to carry them out in order.
func TestTxnDuplicatesThatEtcdOverlooks(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		a := opPut("a", "new")
		for _, c := range []struct {
			what string
			req  *pb.TxnRequest
			left string
		}{
			{"deleted from a key on, then put", then(opDelete("0", "\x00"), a), "a=new c%[1]d m%[1]d v1"},
			{"everything deleted, then put", then(opDelete("\x00", "\x00"), a), "a=new c%[1]d m%[1]d v1"},
			{"put, then deleted from a key on", then(a, opDelete("0", "\x00")), ""},
			{"put nested, then deleted nested", then(opTxn(then(a)), opTxn(then(opDelete("a", "b")))), ""},
		} {
			before := st.put("a", "old").Header.Revision
			resp, err := kv.Txn(s.context(), c.req)
			if err != nil {
				wantStatus(t, c.what, err, codes.InvalidArgument, textDuplicateKey)
				wantEqual(t, c.what+": refused as a whole", st.revision(), before)
				continue
			}
			wantEqual(t, c.what+": one write", resp.Header.Revision, before+1)
			want := c.left
			if want != "" {
				want = fmt.Sprintf(want, before+1)
			}
			wantEqual(t, c.what, st.all(), want)
		}
	})
}

// Requests are looked at in order; what one of them lacks is said in the words
// of the request standing alone.
func TestTxnReportsTheFaultOfAnInnerRequest(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		for _, c := range []struct {
			what string
			req  *pb.TxnRequest
			text string
		}{
			{"compare without a key", when(isMissing(""), nil, nil), textKeyNotProvided},
			{"put without a key", then(opPut("", "")), textKeyNotProvided},
			{"range without a key", then(opRange("", "z")), textKeyNotProvided},
			{"delete without a key", then(opDelete("", "z")), textKeyNotProvided},
			{"empty put", then(opPutRequest(&pb.PutRequest{})), textKeyNotProvided},
			{"in the branch not taken", &pb.TxnRequest{Failure: ops(opPut("", ""))}, textKeyNotProvided},
			{"nested compare", then(opTxn(when(isMissing(""), nil, nil))), textKeyNotProvided},
			{"nested put", then(opTxn(&pb.TxnRequest{Failure: ops(opPut("", ""))})), textKeyNotProvided},
			{"an operation that is none", then(&pb.RequestOp{}), textKeyNotFound},
			{"a nested operation that is none", then(opTxn(then(&pb.RequestOp{}))), textKeyNotFound},
			{"value and ignore_value", then(opPutRequest(&pb.PutRequest{Key: []byte("a"), Value: []byte("v"), IgnoreValue: true})), "etcdserver: value is provided"},
			{"lease and ignore_lease", then(opPutRequest(&pb.PutRequest{Key: []byte("a"), Lease: 9, IgnoreLease: true})), "etcdserver: lease is provided"},
			{"unknown sort", then(opRangeRequest(&pb.RangeRequest{Key: []byte("a"), SortOrder: 9})), "etcdserver: invalid sort option"},
			{"unknown sort target", then(opRangeRequest(&pb.RangeRequest{Key: []byte("a"), SortTarget: -1})), "etcdserver: invalid sort option"},
			{"success comes first", &pb.TxnRequest{Success: ops(&pb.RequestOp{}), Failure: ops(opPut("", ""))}, textKeyNotFound},
			{"compares come first of all", when(isMissing(""), ops(&pb.RequestOp{}), nil), textKeyNotProvided},
			{"faults come before duplicates", then(opPut("a", ""), opPut("a", ""), opPut("", "")), textKeyNotProvided},
			{"duplicates come before presence", then(opPutRequest(&pb.PutRequest{Key: []byte("a"), IgnoreValue: true}), opPut("a", "")), textDuplicateKey},
			{"duplicates come before leases", then(opPutRequest(&pb.PutRequest{Key: []byte("a"), Lease: 99}), opPut("a", "")), textDuplicateKey},
		} {
			_, err := kv.Txn(s.context(), c.req)
			wantStatus(t, c.what, err, codes.InvalidArgument, c.text)
		}
		wantEqual(t, "no write", st.revision(), 1)
	})
}

func TestTxnTooLarge(t *testing.T) {
	withTxn(t, func(t *testing.T, s *server) {
		st, kv := s.store(), s.stubs()
		part := string(make([]byte, 400<<10))
		_, err := kv.Txn(s.context(), then(opPut("a", part), opPut("b", part), opPut("c", part)))
		wantOK(t, "1.2 MiB in all", err)
		_, err = kv.Txn(s.context(), then(opPut("a", part), opPut("b", part), opPut("c", part), opPut("d", part)))
		wantStatus(t, "1.6 MiB in all", err, codes.InvalidArgument, "etcdserver: request is too large")
		wantEqual(t, "refused as a whole", st.revision(), 2)
	})
}

// The limit is a setting, which has etcd's name.
func TestTxnLimitIsASetting(t *testing.T) {
	t.Parallel()
	for _, target := range chosen(etcd, leasekeeper) {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			s := startServerWith(t, target, func(s *server) { s.flags = []string{"--max-txn-ops", "300"} })
			kv := s.stubs()
			for what, req := range map[string]*pb.TxnRequest{
				"success": then(puts(300)...),
				"nested":  then(opTxn(then(puts(299)...))),
			} {
				_, err := kv.Txn(s.context(), req)
				wantOK(t, what, err)
			}
			for what, req := range map[string]*pb.TxnRequest{
				"success": then(puts(301)...),
				"nested":  then(opTxn(then(puts(300)...))),
			} {
				_, err := kv.Txn(s.context(), req)
				wantStatus(t, "one too many: "+what, err, codes.InvalidArgument, textTooManyOps)
			}
			wantEqual(t, "number of keys", s.store().get("key", clientv3.WithPrefix()).Count, int64(300))
		})
	}
}
