package etcdapi

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// kvService is etcd's KV.
type kvService struct {
	pb.UnimplementedKVServer
	*API
}

func (k *kvService) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, keyspace.ErrEmptyKey
	}
	req := rangeRequest(r)
	if isBulk(r) {
		ctx = keyspace.InTurn(ctx, k.cfg.Bulk, string(admission.IdentityOf(ctx)))
	}
	h, res, err := readAt(k.API, r.Serializable, func(serializable bool) (replica.Header, keyspace.RangeResult, error) {
		return k.cfg.Member.Range(ctx, req, serializable)
	})
	if err != nil {
		return nil, err
	}
	return &pb.RangeResponse{
		Header: headerAt(h, res.Revision), Kvs: keyValues(res.KVs), More: res.More, Count: res.Count,
	}, nil
}

// readAt reads. A serializable read may name a revision that this member has not reached, because another member
// reported it to the client. Then the leader answers.
func readAt[T any](s *API, serializable bool, read func(serializable bool) (replica.Header, T, error)) (replica.Header, T, error) {
	h, res, err := read(serializable)
	if serializable && s.cfg.Cluster != nil && errors.Is(err, keyspace.ErrFutureRevision) {
		return read(false)
	}
	return h, res, err
}

func (k *kvService) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	// Applying the put checks this too. Checking it here keeps invalid puts out of the log.
	switch {
	case len(r.Key) == 0:
		return nil, keyspace.ErrEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return nil, keyspace.ErrValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return nil, keyspace.ErrLeaseProvided
	}
	if err := k.checkSize(r); err != nil {
		return nil, err
	}
	h, res, err := k.cfg.Member.Put(ctx, putRequest(r))
	if err != nil {
		return nil, err
	}
	return &pb.PutResponse{Header: headerAt(h, res.Revision), PrevKv: keyValue(res.Prev)}, nil
}

func (k *kvService) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, keyspace.ErrEmptyKey
	}
	if err := k.checkSize(r); err != nil {
		return nil, err
	}
	h, res, err := k.cfg.Member.DeleteRange(ctx, deleteRequest(r))
	if err != nil {
		return nil, err
	}
	return &pb.DeleteRangeResponse{
		Header: headerAt(h, res.Revision), Deleted: res.Deleted, PrevKvs: keyValues(res.Prev),
	}, nil
}

// Compact has no time limit if it is physical, because the client decides how long to wait.
func (k *kvService) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	h, err := k.cfg.Member.Compact(ctx, r.Revision, r.Physical)
	if err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: header(h)}, nil
}

// checkSize refuses a write that would not fit into a log entry.
func (s *API) checkSize(r proto.Message) error {
	if proto.Size(r) > s.cfg.MaxRequestBytes {
		return replica.ErrTooLarge
	}
	return nil
}

func rangeRequest(r *pb.RangeRequest) keyspace.RangeRequest {
	return keyspace.RangeRequest{
		Key: r.GetKey(), End: r.GetRangeEnd(),
		Limit: r.GetLimit(), Revision: r.GetRevision(),
		SortOrder: keyspace.SortOrder(r.GetSortOrder()), SortTarget: keyspace.SortTarget(r.GetSortTarget()),
		KeysOnly: r.GetKeysOnly(), CountOnly: r.GetCountOnly(),
		MinModRevision: r.GetMinModRevision(), MaxModRevision: r.GetMaxModRevision(),
		MinCreateRevision: r.GetMinCreateRevision(), MaxCreateRevision: r.GetMaxCreateRevision(),
	}
}

func putRequest(r *pb.PutRequest) keyspace.PutRequest {
	return keyspace.PutRequest{
		Key: r.GetKey(), Value: r.GetValue(), Lease: r.GetLease(),
		PrevKV: r.GetPrevKv(), IgnoreValue: r.GetIgnoreValue(), IgnoreLease: r.GetIgnoreLease(),
	}
}

func deleteRequest(r *pb.DeleteRangeRequest) keyspace.DeleteRequest {
	return keyspace.DeleteRequest{Key: r.GetKey(), End: r.GetRangeEnd(), PrevKV: r.GetPrevKv()}
}

func keyValue(kv *keyspace.KV) *mvccpb.KeyValue {
	if kv == nil {
		return nil
	}
	out := new(mvccpb.KeyValue)
	setKeyValue(out, kv)
	return out
}

// keyValues shares the bytes of keys and values, which nothing changes.
func keyValues(kvs []keyspace.KV) []*mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	values := make([]mvccpb.KeyValue, len(kvs)) // one allocation for all
	out := make([]*mvccpb.KeyValue, len(kvs))
	for i := range kvs {
		setKeyValue(&values[i], &kvs[i])
		out[i] = &values[i]
	}
	return out
}

func setKeyValue(out *mvccpb.KeyValue, kv *keyspace.KV) {
	out.Key, out.Value = kv.Key, kv.Value
	out.CreateRevision, out.ModRevision, out.Version = kv.CreateRevision, kv.ModRevision, kv.Version
	out.Lease = kv.Lease
}

// smallRange is the largest limit of a range that is not bulk work.
const smallRange = entry.SmallRange

// isBulk reports whether a range may read many keys.
func isBulk(r *pb.RangeRequest) bool {
	return len(r.RangeEnd) > 0 && (r.Limit == 0 || r.Limit > smallRange)
}
