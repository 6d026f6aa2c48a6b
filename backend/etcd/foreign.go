package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

var _ backend.ForeignLister = (*Backend)(nil)

// ForeignKinds implements [backend.ForeignLister].
func (b *Backend) ForeignKinds() []string { return []string{endpoints.RecipeKind} }

// ForeignLocks implements [backend.ForeignLister]. It looks at all keys of etcd, not only at those below the backend's
// prefix, so a user of etcd needs the right to read them.
func (b *Backend) ForeignLocks(ctx context.Context, limit int) ([]backend.ForeignLock, bool, error) {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer end()
	const what = "listing locks of other programs"
	read := func(f *failure) error {
		if f != nil {
			return f.Read(what)
		}
		return nil
	}
	return endpoints.Recipe{
		Range: func(ctx context.Context, req *pb.RangeRequest) (*pb.RangeResponse, error) {
			resp, f := b.rangeKeys(ctx, req)
			return resp, read(f)
		},
		Txn: func(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
			resp, f := b.look(ctx, req)
			return resp, read(f)
		},
		TTL: func(ctx context.Context, id int64) (*pb.LeaseTimeToLiveResponse, error) {
			resp, f := b.timeToLive(ctx, id, false)
			return resp, read(f)
		},
	}.Locks(ctx, limit)
}
