package conformance

import (
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Short ways to write a txn and its result.

func opPut(key, value string) *pb.RequestOp {
	return opPutRequest(&pb.PutRequest{Key: []byte(key), Value: []byte(value)})
}

func opPutRequest(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func opRange(key, end string) *pb.RequestOp {
	return opRangeRequest(&pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)})
}

func opRangeRequest(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func opDelete(key, end string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
		RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true}}}
}

func opTxn(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

func ops(o ...*pb.RequestOp) []*pb.RequestOp { return o }

// then is a txn without conditions.
func then(o ...*pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Success: o} }

// when is a txn that depends on one condition.
func when(c *pb.Compare, success, failure []*pb.RequestOp) *pb.TxnRequest {
	return &pb.TxnRequest{Compare: []*pb.Compare{c}, Success: success, Failure: failure}
}

// compareNumber compares any target but a value.
func compareNumber(target pb.Compare_CompareTarget, key string, result pb.Compare_CompareResult, n int64) *pb.Compare {
	c := &pb.Compare{Target: target, Key: []byte(key), Result: result}
	switch target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: n}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: n}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: n}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: n}
	default:
		panic("not a number: " + target.String())
	}
	return c
}

func compareValue(key string, result pb.Compare_CompareResult, value string) *pb.Compare {
	return &pb.Compare{
		Target: pb.Compare_VALUE, Key: []byte(key), Result: result,
		TargetUnion: &pb.Compare_Value{Value: []byte(value)},
	}
}

// isThere and isMissing are the conditions that locks are made of.
func isThere(key string) *pb.Compare {
	return compareNumber(pb.Compare_CREATE, key, pb.Compare_GREATER, 0)
}

func isMissing(key string) *pb.Compare {
	return compareNumber(pb.Compare_CREATE, key, pb.Compare_EQUAL, 0)
}

// over widens a compare to an interval.
func over(c *pb.Compare, end string) *pb.Compare {
	c.RangeEnd = []byte(end)
	return c
}

// txn is a txn that has to be accepted.
func (st store) txn(r *pb.TxnRequest) *pb.TxnResponse {
	st.s.t.Helper()
	resp, err := pb.NewKVClient(st.c.ActiveConnection()).Txn(st.s.context(), r)
	wantOK(st.s.t, "txn", err)
	return resp
}

// showTxn formats the answer of a txn, without revisions of headers: "then" or
// "else" for the branch taken and one item for each operation.
func showTxn(resp *pb.TxnResponse) string {
	branch := "else"
	if resp.Succeeded {
		branch = "then"
	}
	items := []string{}
	for _, r := range resp.Responses {
		items = append(items, showOp(r))
	}
	return branch + " [" + strings.Join(items, "; ") + "]"
}

func showOp(r *pb.ResponseOp) string {
	one := func(s string) string { return strings.ReplaceAll(s, "\n", ", ") }
	switch r := r.Response.(type) {
	case *pb.ResponseOp_ResponsePut:
		if prev := r.ResponsePut.PrevKv; prev != nil {
			return "put over " + show(prev)
		}
		return "put"
	case *pb.ResponseOp_ResponseRange:
		return fmt.Sprintf("%d: %s", r.ResponseRange.Count, one(show(r.ResponseRange.Kvs...)))
	case *pb.ResponseOp_ResponseDeleteRange:
		return fmt.Sprintf("deleted %d: %s", r.ResponseDeleteRange.Deleted, one(show(r.ResponseDeleteRange.PrevKvs...)))
	case *pb.ResponseOp_ResponseTxn:
		return showTxn(r.ResponseTxn)
	default:
		return fmt.Sprintf("nothing (%T)", r)
	}
}
