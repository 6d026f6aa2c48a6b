package entry

import (
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// Conversions between the keyspace's requests and their protobuf messages.

func putMessage(p keyspace.PutRequest) *logpb.Put {
	return &logpb.Put{
		Key: p.Key, Value: p.Value, Lease: p.Lease,
		PrevKv: p.PrevKV, IgnoreValue: p.IgnoreValue, IgnoreLease: p.IgnoreLease,
	}
}

func putRequest(p *logpb.Put) keyspace.PutRequest {
	return keyspace.PutRequest{
		Key: p.GetKey(), Value: p.GetValue(), Lease: p.GetLease(),
		PrevKV: p.GetPrevKv(), IgnoreValue: p.GetIgnoreValue(), IgnoreLease: p.GetIgnoreLease(),
	}
}

func deleteMessage(d keyspace.DeleteRequest) *logpb.DeleteRange {
	return &logpb.DeleteRange{Key: d.Key, End: d.End, PrevKv: d.PrevKV}
}

func deleteRequest(d *logpb.DeleteRange) keyspace.DeleteRequest {
	return keyspace.DeleteRequest{Key: d.GetKey(), End: d.GetEnd(), PrevKV: d.GetPrevKv()}
}

func rangeMessage(r keyspace.RangeRequest) *logpb.Range {
	return &logpb.Range{
		Key: r.Key, End: r.End, Limit: r.Limit, Revision: r.Revision,
		SortOrder: int32(r.SortOrder), SortTarget: int32(r.SortTarget),
		KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
		MinModRevision: r.MinModRevision, MaxModRevision: r.MaxModRevision,
		MinCreateRevision: r.MinCreateRevision, MaxCreateRevision: r.MaxCreateRevision,
	}
}

func rangeRequest(r *logpb.Range) keyspace.RangeRequest {
	return keyspace.RangeRequest{
		Key: r.GetKey(), End: r.GetEnd(), Limit: r.GetLimit(), Revision: r.GetRevision(),
		SortOrder: keyspace.SortOrder(r.GetSortOrder()), SortTarget: keyspace.SortTarget(r.GetSortTarget()),
		KeysOnly: r.GetKeysOnly(), CountOnly: r.GetCountOnly(),
		MinModRevision: r.GetMinModRevision(), MaxModRevision: r.GetMaxModRevision(),
		MinCreateRevision: r.GetMinCreateRevision(), MaxCreateRevision: r.GetMaxCreateRevision(),
	}
}

func txnMessage(t keyspace.TxnRequest) *logpb.Txn {
	m := &logpb.Txn{Success: txnOpMessages(t.Success), Failure: txnOpMessages(t.Failure)}
	for _, c := range t.Compare {
		m.Compare = append(m.Compare, &logpb.Compare{
			Result: int32(c.Result), Target: int32(c.Target), Key: c.Key, End: c.End, Number: c.Number, Value: c.Value,
		})
	}
	return m
}

func txnRequest(m *logpb.Txn) keyspace.TxnRequest {
	t := keyspace.TxnRequest{Success: txnOps(m.GetSuccess()), Failure: txnOps(m.GetFailure())}
	for _, c := range m.GetCompare() {
		t.Compare = append(t.Compare, keyspace.Compare{
			Result: keyspace.CompareResult(c.Result), Target: keyspace.CompareTarget(c.Target),
			Key: c.Key, End: c.End, Number: c.Number, Value: c.Value,
		})
	}
	return t
}

func txnOpMessages(ops []keyspace.TxnOp) []*logpb.TxnOp {
	all := make([]*logpb.TxnOp, len(ops))
	for i, op := range ops {
		all[i] = new(logpb.TxnOp) // stays empty for an unknown operation, which is refused when it is applied
		switch op := op.(type) {
		case keyspace.RangeRequest:
			all[i].Op = &logpb.TxnOp_Range{Range: rangeMessage(op)}
		case keyspace.PutRequest:
			all[i].Op = &logpb.TxnOp_Put{Put: putMessage(op)}
		case keyspace.DeleteRequest:
			all[i].Op = &logpb.TxnOp_DeleteRange{DeleteRange: deleteMessage(op)}
		case keyspace.TxnRequest:
			all[i].Op = &logpb.TxnOp_Txn{Txn: txnMessage(op)}
		}
	}
	return all
}

func txnOps(ops []*logpb.TxnOp) []keyspace.TxnOp {
	all := make([]keyspace.TxnOp, len(ops))
	for i, m := range ops {
		switch op := m.Op.(type) {
		case *logpb.TxnOp_Range:
			all[i] = rangeRequest(op.Range)
		case *logpb.TxnOp_Put:
			all[i] = putRequest(op.Put)
		case *logpb.TxnOp_DeleteRange:
			all[i] = deleteRequest(op.DeleteRange)
		case *logpb.TxnOp_Txn:
			all[i] = txnRequest(op.Txn)
		}
	}
	return all
}
