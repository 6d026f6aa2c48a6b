package remote

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// endpoint is one connection to one endpoint.
type endpoint struct {
	conn     *grpc.ClientConn
	names    leasekeeperv1.LeasekeeperClient
	kv       pb.KVClient // for what our own service has no method for
	renewals mux[*renewMessage]
	holds    holds
}

func newEndpoint(conn *grpc.ClientConn) *endpoint {
	return &endpoint{conn: conn, names: leasekeeperv1.NewLeasekeeperClient(conn), kv: pb.NewKVClient(conn)}
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

// request is one call of the server. It may be made several times, at several endpoints.
type request = endpoints.Attempt[*endpoint]

// unary makes a request of one with one answer.
func unary(call func(ctx context.Context, w *endpoint, options ...grpc.CallOption) error) request {
	return func(ctx context.Context, w *endpoint, _ int64) (bool, error) {
		// The peer is known exactly when a stream was opened on a connection.
		var p peer.Peer
		err := call(ctx, w, grpc.Peer(&p))
		return p.Addr != nil, err
	}
}

// ask makes a request. The outcome tells about all attempts.
func (b *Backend) ask(ctx context.Context, make request) outcome {
	o := b.endpoints.Ask(ctx, make)
	return outcome{err: o.Err, maybe: o.Maybe}
}

// txn is a transaction of etcd's API. Nothing but the card of a holder is written by that.
func (b *Backend) txn(ctx context.Context, req *pb.TxnRequest) (resp *pb.TxnResponse, o outcome) {
	o = b.ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Txn(ctx, req, options...)
		return err
	}))
	return resp, o
}

// ownership returns the key of a lease, nil if there is none.
func (b *Backend) ownership(ctx context.Context, l *lease) (key *mvccpb.KeyValue, o outcome) {
	var resp *pb.RangeResponse
	o = b.ask(ctx, unary(func(ctx context.Context, w *endpoint, options ...grpc.CallOption) (err error) {
		resp, err = w.kv.Range(ctx, &pb.RangeRequest{Key: l.key()}, options...)
		return err
	}))
	if len(resp.GetKvs()) == 0 {
		return nil, o
	}
	return resp.Kvs[0], o
}
