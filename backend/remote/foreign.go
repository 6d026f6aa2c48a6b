package remote

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

var _ backend.ForeignLister = (*Backend)(nil)

// ForeignKinds implements [backend.ForeignLister].
func (b *Backend) ForeignKinds() []string { return []string{endpoints.RecipeKind} }

// ForeignLocks implements [backend.ForeignLister]. It reads keys and leases by etcd's API, which the server speaks too. It
// looks at all keys, not only at those of the namespace, so a user needs the right to read them.
func (b *Backend) ForeignLocks(ctx context.Context, limit int) ([]backend.ForeignLock, bool, error) {
	ctx, end, err := b.endpoints.Begin(ctx)
	if err != nil {
		return nil, false, err
	}
	defer end()
	return endpoints.Recipe{
		Range: func(ctx context.Context, req *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
			err = b.readForeign(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
				resp, err = w.kv.Range(ctx, req, options...)
				return err
			})
			return resp, err
		},
		Txn: func(ctx context.Context, req *pb.TxnRequest) (resp *pb.TxnResponse, err error) {
			err = b.readForeign(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
				resp, err = w.kv.Txn(ctx, req, options...)
				return err
			})
			return resp, err
		},
		TTL: func(ctx context.Context, id int64) (resp *pb.LeaseTimeToLiveResponse, err error) {
			err = b.readForeign(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
				resp, err = pb.NewLeaseClient(w.conn).LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id}, options...)
				return err
			})
			return resp, err
		},
	}.Locks(ctx, limit)
}

// readForeign makes a request that only reads.
func (b *Backend) readForeign(ctx context.Context, call func(context.Context, *endpoint, ...grpc.CallOption) error) error {
	if o := b.endpoints.Ask(ctx, unary(call)); o.Err != nil {
		return o.Read("listing locks of other programs")
	}
	return nil
}
