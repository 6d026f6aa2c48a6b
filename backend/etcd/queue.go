package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// queueLimits are how many keys of a queue one request reads, from the first request to the last. Names below a name can have
// many keys, which are not in its queue, and etcd cannot leave them out.
var queueLimits = [...]int64{64, 1024, 16384, 0}

// maxOps is how many operations a transaction of etcd may have.
const maxOps = 128

// verifyBatch is how many keys one transaction reads with their values.
const verifyBatch = 64

func rangeOp(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

// oneKey reads a key with its value.
func oneKey(key string) *pb.RangeRequest { return &pb.RangeRequest{Key: []byte(key)} }

// queueRange reads keys of a queue, without values, in the order of their creation.
func (b *Backend) queueRange(name string, limit int64) *pb.RangeRequest {
	prefix := b.queuePrefix(name)
	return &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: after(prefix), Limit: limit, KeysOnly: true,
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	}
}

// rangeAhead reads keys of a queue that were created before a revision, the newest first.
func (b *Backend) rangeAhead(name string, created, limit int64) *pb.RangeRequest {
	r := b.queueRange(name, limit)
	r.SortOrder, r.MaxCreateRevision = pb.RangeRequest_DESCEND, created-1
	return r
}

// candidates are the keys of an answer that may be in the queue of a name.
func (b *Backend) candidates(name string, r *pb.RangeResponse) []*mvccpb.KeyValue {
	var found []*mvccpb.KeyValue
	for _, kv := range r.Kvs {
		if b.mayBeQueued(name, kv) {
			found = append(found, kv)
		}
	}
	return found
}

// verify reads candidates again, with their leases, until it finds keys that are in the queue. It returns the keys of that
// batch. extra is a key that it reads at the same revision.
func (b *Backend) verify(ctx context.Context, name string, candidates []*mvccpb.KeyValue, extra string) (found []*mvccpb.KeyValue, own *mvccpb.KeyValue, rev int64, f *failure) {
	for len(candidates) > 0 && len(found) == 0 {
		batch := candidates[:min(len(candidates), verifyBatch)]
		candidates = candidates[len(batch):]
		req := &pb.TxnRequest{Success: []*pb.RequestOp{rangeOp(oneKey(extra))}}
		for _, kv := range batch {
			req.Success = append(req.Success, rangeOp(&pb.RangeRequest{Key: kv.Key}))
		}
		resp, f := b.look(ctx, req)
		if f != nil {
			return nil, nil, 0, f
		}
		rev, own = resp.Header.Revision, single(resp.Responses[0])
		for i, kv := range batch {
			now := single(resp.Responses[i+1])
			if now != nil && now.CreateRevision == kv.CreateRevision && b.isQueued(name, now) {
				found = append(found, now)
			}
		}
	}
	return found, own, rev, nil
}

// single returns the key that a read of one key found, or nil if it found none.
func single(r *pb.ResponseOp) *mvccpb.KeyValue {
	if kvs := r.GetResponseRange().GetKvs(); len(kvs) > 0 {
		return kvs[0]
	}
	return nil
}

// queuePlace is the place of a key in its queue.
type queuePlace struct {
	gone   bool             // the key is not in the queue; the other fields are not set
	before *mvccpb.KeyValue // the key directly before it; nil if it owns the name
	place  int              // how many keys are before it; 0 if unknown, or if it owns the name
	rev    int64            // the revision of the read
}

// lookUpPlace returns the place of a lease in the queue of its name.
func (b *Backend) lookUpPlace(ctx context.Context, l *lease) (queuePlace, *failure) {
	var s queuePlace
	for _, limit := range queueLimits {
		resp, f := b.look(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
			rangeOp(oneKey(l.key)), rangeOp(b.rangeAhead(l.name, l.created, limit)),
		}})
		if f != nil {
			return s, f
		}
		if !l.is(single(resp.Responses[0])) {
			return queuePlace{gone: true}, nil
		}
		s.rev = resp.Header.Revision
		keys := resp.Responses[1].GetResponseRange()
		candidates := b.candidates(l.name, keys)
		if len(candidates) > 0 {
			found, own, rev, f := b.verify(ctx, l.name, candidates, l.key)
			if f != nil {
				return s, f
			}
			if !l.is(own) {
				return queuePlace{gone: true}, nil
			}
			s.rev = rev
			if len(found) > 0 {
				s.before = found[0]
				if !keys.More && len(candidates) <= verifyBatch {
					s.place = len(found)
				}
				return s, nil
			}
		}
		if !keys.More {
			break
		}
	}
	return s, nil
}

// is reports whether a key that was read is the key of the lease and still attached to it.
func (l *lease) is(kv *mvccpb.KeyValue) bool {
	return kv != nil && kv.CreateRevision == l.created && kv.Lease == l.id
}

// tenure is the present tenure of a name.
type tenure struct {
	owner   *mvccpb.KeyValue // nil if the name is free
	waiting int              // how many keys are behind the owner; -1 if unknown
	own     *mvccpb.KeyValue // the extra key that lookUpTenure read; nil if it does not exist
	rev     int64
}

// lookUpTenure returns the present tenure of a name. extra is another key that it reads.
func (b *Backend) lookUpTenure(ctx context.Context, name, extra string) (tenure, *failure) {
	var t tenure
	for _, limit := range queueLimits {
		// The first key is read with its value: most often it is the owner's.
		first := b.queueRange(name, 1)
		first.KeysOnly = false
		resp, f := b.look(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{
			rangeOp(first), rangeOp(b.queueRange(name, limit)), rangeOp(oneKey(extra)),
		}})
		if f != nil {
			return t, f
		}
		t.rev, t.own = resp.Header.Revision, single(resp.Responses[2])
		keys := resp.Responses[1].GetResponseRange()
		candidates := b.candidates(name, keys)
		if len(candidates) > 0 {
			if kv := single(resp.Responses[0]); b.isQueued(name, kv) {
				t.owner = kv
			} else {
				found, own, rev, f := b.verify(ctx, name, candidates, extra)
				if f != nil {
					return t, f
				}
				t.rev, t.own = rev, own
				if len(found) > 0 {
					t.owner = found[0]
				}
			}
		}
		if t.owner != nil {
			t.waiting = -1
			if !keys.More {
				t.waiting = countAfter(candidates, t.owner.CreateRevision)
			}
			return t, nil
		}
		if !keys.More {
			break
		}
	}
	return t, nil
}

func countAfter(candidates []*mvccpb.KeyValue, created int64) int {
	n := 0
	for _, kv := range candidates {
		if kv.CreateRevision > created {
			n++
		}
	}
	return n
}
