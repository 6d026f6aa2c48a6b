package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// endpoint is one connection to one member.
type endpoint struct {
	kv    pb.KVClient
	lease pb.LeaseClient
	watch pb.WatchClient
	auth  pb.AuthClient
	// asking has an element while a request asks for a token at this endpoint.
	asking chan struct{}
}

func newEndpoint(conn *grpc.ClientConn) *endpoint {
	return &endpoint{
		kv: pb.NewKVClient(conn), lease: pb.NewLeaseClient(conn), watch: pb.NewWatchClient(conn), auth: pb.NewAuthClient(conn),
		asking: make(chan struct{}, 1),
	}
}

// outgoing returns a context with the metadata of a request: the token, and that the member is to return an error if it has
// no leader.
func outgoing(ctx context.Context, token string) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, token)
	}
	return ctx
}

// request is one call of etcd. The backend may make it several times, at several members.
type request func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error

// ask makes a request at one endpoint after the other until one answers. It returns nil if the answer is a success. It gives
// up when ctx ends, and after a number of attempts.
func (b *Backend) ask(ctx context.Context, make request) *failure {
	return failureOf(b.endpoints.Ask(ctx, func(ctx context.Context, w *endpoint, _ int64) (bool, error) {
		return b.attempt(ctx, w, make)
	}))
}

// tokenTries is how often a request is made with another token. A second one may not be valid either: etcd refuses all
// tokens that are older than the last change of its users and roles, and each change makes them older.
const tokenTries = 4

// attempt makes a request, and makes it again while its token is not valid, at most tokenTries times. sent reports whether
// the request may have reached the member.
func (b *Backend) attempt(ctx context.Context, w *endpoint, make request) (sent bool, err error) {
	for range tokenTries {
		token, err := b.user.token(ctx, w)
		if err != nil {
			return false, err
		}
		sent, err := endpoints.Call(func(peer grpc.CallOption) error { return make(outgoing(ctx, token), w, peer) })
		if !b.user.refused(err, token) {
			return sent, err
		}
	}
	return false, rpctypes.ErrGRPCInvalidAuthToken
}

func (b *Backend) txn(ctx context.Context, req *pb.TxnRequest) (resp *pb.TxnResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.txn(ctx, req, options...)
		return err
	})
	return resp, f
}

func (w *endpoint) txn(ctx context.Context, req *pb.TxnRequest, options ...grpc.CallOption) (*pb.TxnResponse, error) {
	resp, err := w.kv.Txn(ctx, req, options...)
	if err == nil && !answers(resp, req) {
		err = status.Error(codes.Internal, "the server's answer does not fit the request: is it etcd?")
	}
	return resp, err
}

// answers reports whether resp has an answer to each operation of req, so the caller may index them.
func answers(resp *pb.TxnResponse, req *pb.TxnRequest) bool {
	if resp.Succeeded {
		return len(resp.Responses) == len(req.Success)
	}
	return len(resp.Responses) == len(req.Failure)
}

// look makes a transaction that only reads.
func (b *Backend) look(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, *failure) {
	resp, f := b.txn(ctx, req)
	return resp, f.harmless()
}

func (b *Backend) rangeKeys(ctx context.Context, req *pb.RangeRequest) (resp *pb.RangeResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Range(ctx, req, options...)
		return err
	})
	return resp, f.harmless()
}

func (b *Backend) leaseGrant(ctx context.Context, id, ttl int64) (resp *pb.LeaseGrantResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl}, options...)
		return err
	})
	return resp, f
}

func (b *Backend) leaseRevoke(ctx context.Context, id int64) *failure {
	return b.ask(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error {
		_, err := w.lease.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id}, options...)
		return err
	})
}

func (b *Backend) timeToLive(ctx context.Context, id int64, keys bool) (resp *pb.LeaseTimeToLiveResponse, f *failure) {
	f = b.ask(ctx, func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: id, Keys: keys}, options...)
		return err
	})
	return resp, f.harmless()
}
