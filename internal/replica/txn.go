package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// What the keyspace is asked for, as the log has it and back.

func encodePut(p keyspace.PutRequest) *logpb.Put {
	return &logpb.Put{
		Key: p.Key, Value: p.Value, Lease: p.Lease,
		PrevKv: p.PrevKV, IgnoreValue: p.IgnoreValue, IgnoreLease: p.IgnoreLease,
	}
}

func decodePut(p *logpb.Put) keyspace.PutRequest {
	return keyspace.PutRequest{
		Key: p.GetKey(), Value: p.GetValue(), Lease: p.GetLease(),
		PrevKV: p.GetPrevKv(), IgnoreValue: p.GetIgnoreValue(), IgnoreLease: p.GetIgnoreLease(),
	}
}

func encodeDelete(d keyspace.DeleteRequest) *logpb.DeleteRange {
	return &logpb.DeleteRange{Key: d.Key, End: d.End, PrevKv: d.PrevKV}
}

func decodeDelete(d *logpb.DeleteRange) keyspace.DeleteRequest {
	return keyspace.DeleteRequest{Key: d.GetKey(), End: d.GetEnd(), PrevKV: d.GetPrevKv()}
}

func encodeRange(r keyspace.RangeRequest) *logpb.Range {
	return &logpb.Range{
		Key: r.Key, End: r.End, Limit: r.Limit, Revision: r.Revision,
		SortOrder: int32(r.SortOrder), SortTarget: int32(r.SortTarget),
		KeysOnly: r.KeysOnly, CountOnly: r.CountOnly,
		MinModRevision: r.MinModRevision, MaxModRevision: r.MaxModRevision,
		MinCreateRevision: r.MinCreateRevision, MaxCreateRevision: r.MaxCreateRevision,
	}
}

func decodeRange(r *logpb.Range) keyspace.RangeRequest {
	return keyspace.RangeRequest{
		Key: r.GetKey(), End: r.GetEnd(), Limit: r.GetLimit(), Revision: r.GetRevision(),
		SortOrder: keyspace.SortOrder(r.GetSortOrder()), SortTarget: keyspace.SortTarget(r.GetSortTarget()),
		KeysOnly: r.GetKeysOnly(), CountOnly: r.GetCountOnly(),
		MinModRevision: r.GetMinModRevision(), MaxModRevision: r.GetMaxModRevision(),
		MinCreateRevision: r.GetMinCreateRevision(), MaxCreateRevision: r.GetMaxCreateRevision(),
	}
}

func encodeTxn(t keyspace.TxnRequest) *logpb.Txn {
	m := &logpb.Txn{Success: encodeTxnOps(t.Success), Failure: encodeTxnOps(t.Failure)}
	for _, c := range t.Compare {
		m.Compare = append(m.Compare, &logpb.Compare{
			Result: int32(c.Result), Target: int32(c.Target), Key: c.Key, End: c.End, Number: c.Number, Value: c.Value,
		})
	}
	return m
}

func decodeTxn(m *logpb.Txn) keyspace.TxnRequest {
	t := keyspace.TxnRequest{Success: decodeTxnOps(m.GetSuccess()), Failure: decodeTxnOps(m.GetFailure())}
	for _, c := range m.GetCompare() {
		t.Compare = append(t.Compare, keyspace.Compare{
			Result: keyspace.CompareResult(c.Result), Target: keyspace.CompareTarget(c.Target),
			Key: c.Key, End: c.End, Number: c.Number, Value: c.Value,
		})
	}
	return t
}

func encodeTxnOps(ops []keyspace.TxnOp) []*logpb.TxnOp {
	all := make([]*logpb.TxnOp, len(ops))
	for i, op := range ops {
		all[i] = new(logpb.TxnOp) // empty if it is none, which is refused where it is applied
		switch op := op.(type) {
		case keyspace.RangeRequest:
			all[i].Op = &logpb.TxnOp_Range{Range: encodeRange(op)}
		case keyspace.PutRequest:
			all[i].Op = &logpb.TxnOp_Put{Put: encodePut(op)}
		case keyspace.DeleteRequest:
			all[i].Op = &logpb.TxnOp_DeleteRange{DeleteRange: encodeDelete(op)}
		case keyspace.TxnRequest:
			all[i].Op = &logpb.TxnOp_Txn{Txn: encodeTxn(op)}
		}
	}
	return all
}

func decodeTxnOps(ops []*logpb.TxnOp) []keyspace.TxnOp {
	all := make([]keyspace.TxnOp, len(ops))
	for i, m := range ops {
		switch op := m.Op.(type) {
		case *logpb.TxnOp_Range:
			all[i] = decodeRange(op.Range)
		case *logpb.TxnOp_Put:
			all[i] = decodePut(op.Put)
		case *logpb.TxnOp_DeleteRange:
			all[i] = decodeDelete(op.DeleteRange)
		case *logpb.TxnOp_Txn:
			all[i] = decodeTxn(op.Txn)
		}
	}
	return all
}
