package etcd_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// If a member does not answer a request for a new token, a renewal asks another member, as every other request does.
func TestTokenIsRequestedFromAnotherEndpoint(t *testing.T) {
	s := startStore(t)
	var refuse, stall atomic.Bool
	unary := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if !strings.HasSuffix(method, "/Authenticate") {
			return invoke(ctx, method, req, reply, cc, opts...)
		}
		if stall.CompareAndSwap(true, false) {
			<-ctx.Done()
			return ctx.Err()
		}
		reply.(*pb.AuthenticateResponse).Token = "token"
		return nil
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		if refuse.CompareAndSwap(true, false) {
			return nil, rpctypes.ErrGRPCInvalidAuthToken
		}
		return open(ctx, desc, cc, method, opts...)
	}
	b := openWith(t, etcd.Config{
		Endpoints: []string{s.Addr}, Username: "u", Password: "p", RequestTimeout: 200 * time.Millisecond,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)},
	})
	l, _ := hold(t, b, unique("token"))
	stall.Store(true)
	refuse.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	defer time.AfterFunc(20*time.Second, cancel).Stop() // otherwise Renew would wait for the token that long
	ok(t, b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { ok(t, r.Err) }))
}
