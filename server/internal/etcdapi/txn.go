package etcdapi

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

func (k *kvService) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	req := TxnRequest(r)
	// This check precedes that of the size, as in etcd. It also keeps invalid transactions away from the member.
	if err := keyspace.CheckTxn(req, k.cfg.MaxTxnOps); err != nil {
		return nil, err
	}
	if !req.ReadOnly() {
		if err := k.checkSize(r); err != nil {
			return nil, err
		}
	}
	if req.ReadOnly() && entry.IsBulk(req) {
		ctx = keyspace.InTurn(ctx, k.cfg.Bulk, string(admission.IdentityOf(ctx)))
	}
	ranges, serializable := serializableRanges(r)
	h, res, err := readAt(k.API, ranges > 0 && ranges == serializable, func(serializable bool) (replica.Header, keyspace.TxnResult, error) {
		return k.cfg.Member.Txn(ctx, req, serializable)
	})
	if err != nil {
		return nil, err
	}
	resp := txnResponse(&res)
	resp.Header = headerAt(h, res.Revision)
	return resp, nil
}

// serializableRanges counts the ranges in all branches of a transaction, and those among them that are serializable.
func serializableRanges(r *pb.TxnRequest) (ranges, serializable int) {
	for _, ops := range [][]*pb.RequestOp{r.GetSuccess(), r.GetFailure()} {
		for _, op := range ops {
			switch op := op.GetRequest().(type) {
			case *pb.RequestOp_RequestRange:
				ranges++
				if op.RequestRange.GetSerializable() {
					serializable++
				}
			case *pb.RequestOp_RequestTxn:
				n, s := serializableRanges(op.RequestTxn)
				ranges, serializable = ranges+n, serializable+s
			}
		}
	}
	return ranges, serializable
}

// TxnRequest converts a transaction of etcd's API to one of the key space.
func TxnRequest(r *pb.TxnRequest) keyspace.TxnRequest {
	req := keyspace.TxnRequest{Success: txnOps(r.GetSuccess()), Failure: txnOps(r.GetFailure())}
	if n := len(r.GetCompare()); n > 0 {
		req.Compare = make([]keyspace.Compare, n)
		for i, c := range r.Compare {
			req.Compare[i] = compare(c)
		}
	}
	return req
}

// compare converts one condition. It reads the union member that belongs to the target. A union member of another kind
// counts as zero or empty.
func compare(c *pb.Compare) keyspace.Compare {
	out := keyspace.Compare{
		Result: keyspace.CompareResult(c.GetResult()), Target: keyspace.CompareTarget(c.GetTarget()),
		Key: c.GetKey(), End: c.GetRangeEnd(),
	}
	switch c.GetTarget() {
	case pb.Compare_VERSION:
		out.Number = c.GetVersion()
	case pb.Compare_CREATE:
		out.Number = c.GetCreateRevision()
	case pb.Compare_MOD:
		out.Number = c.GetModRevision()
	case pb.Compare_VALUE:
		out.Value = c.GetValue()
	case pb.Compare_LEASE:
		out.Number = c.GetLease()
	}
	return out
}

func txnOps(ops []*pb.RequestOp) []keyspace.TxnOp {
	if len(ops) == 0 {
		return nil
	}
	out := make([]keyspace.TxnOp, len(ops)) // nil for an operation without a request
	for i, op := range ops {
		switch op := op.GetRequest().(type) {
		case *pb.RequestOp_RequestRange:
			out[i] = rangeRequest(op.RequestRange)
		case *pb.RequestOp_RequestPut:
			out[i] = putRequest(op.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			out[i] = deleteRequest(op.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			out[i] = TxnRequest(op.RequestTxn)
		}
	}
	return out
}

// txnResponse sets headers as etcd does. The answer of each operation has only the revision, and the answer of an inner
// transaction has an empty header.
func txnResponse(res *keyspace.TxnResult) *pb.TxnResponse {
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: res.Succeeded}
	for _, r := range res.Results {
		resp.Responses = append(resp.Responses, responseOp(r))
	}
	return resp
}

func responseOp(r keyspace.TxnOpResult) *pb.ResponseOp {
	at := func(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
	op := new(pb.ResponseOp)
	switch r := r.(type) {
	case keyspace.RangeResult:
		op.Response = &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{
			Header: at(r.Revision), Kvs: keyValues(r.KVs), More: r.More, Count: r.Count,
		}}
	case keyspace.PutResult:
		op.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{
			Header: at(r.Revision), PrevKv: keyValue(r.Prev),
		}}
	case keyspace.DeleteResult:
		op.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{
			Header: at(r.Revision), Deleted: r.Deleted, PrevKvs: keyValues(r.Prev),
		}}
	case keyspace.TxnResult:
		op.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: txnResponse(&r)}
	}
	return op
}

// ReadsOnly reports whether a request is a transaction that only reads.
func ReadsOnly(req any) bool {
	txn, ok := req.(*pb.TxnRequest)
	return ok && TxnRequest(txn).ReadOnly()
}
