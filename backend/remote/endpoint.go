package remote

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/credential"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// endpoint is one connection to one endpoint.
type endpoint struct {
	conn     *grpc.ClientConn
	user     *credential.User // nil if no user is given
	names    leasekeeperv1.LeasekeeperClient
	kv       pb.KVClient // for the holder's card, and lists of marks: leasekeeper.v1 has no method for either
	renewals mux[*renewMessage]
	holds    holds
}

func newEndpoint(conn *grpc.ClientConn, of *credential.User) *endpoint {
	return &endpoint{conn: conn, user: of, names: leasekeeperv1.NewLeasekeeperClient(conn), kv: pb.NewKVClient(conn)}
}

// start makes the endpoint ready for claims, releases and renewals.
func (w *endpoint) start(set *endpoints.Set[*endpoint]) {
	w.renewals.endpoints, w.holds.endpoints = set, set
	w.renewals.newProtocol = func(s *muxStream[*renewMessage]) protocol[*renewMessage] {
		return &renewStream{muxStream: s, endpoint: w}
	}
	w.holds.newProtocol = func(s *muxStream[*holdCall]) protocol[*holdCall] {
		return &holdStream{muxStream: s, home: &w.holds, endpoint: w, expires: noMoment}
	}
}

// request makes a request once, at one endpoint.
type request = endpoints.Attempt[*endpoint]

// unary returns a request that makes a call with one answer.
func unary(call func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error) request {
	return func(ctx context.Context, w *endpoint, _ int64) (bool, error) {
		return endpoints.Call(func(peer grpc.CallOption) error { return call(ctx, w, peer) })
	}
}

// txn makes a transaction of etcd's API. It serves to write the holder's card only.
func (b *Backend) txn(ctx context.Context, req *pb.TxnRequest) (resp *pb.TxnResponse, o endpoints.Outcome) {
	o = b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Txn(ctx, req, options...)
		return err
	}))
	return resp, o
}

// ownership returns the ownership key of a lease, or nil if there is none.
func (b *Backend) ownership(ctx context.Context, l *lease) (key *mvccpb.KeyValue, o endpoints.Outcome) {
	var resp *pb.RangeResponse
	o = b.endpoints.Ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Range(ctx, &pb.RangeRequest{Key: l.ownershipKey()}, options...)
		return err
	}))
	if len(resp.GetKvs()) == 0 {
		return nil, o
	}
	return resp.Kvs[0], o
}
