package etcd_test

import (
	"context"
	"path"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/etcd"
)

// The requests of a call carry the header of its context. It becomes part of no key. Renewals have the context of a keeper.
func TestRequestsCarryTheTraceparentOfTheirCall(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	const header = "00-" + id + "-00f067aa0ba902b7-01"
	s := startStore(t)
	var mu sync.Mutex
	headers := make(map[string]string) // of the last call of each method
	note := func(ctx context.Context, method string) {
		mu.Lock()
		defer mu.Unlock()
		md, _ := metadata.FromOutgoingContext(ctx)
		headers[path.Base(method)] = strings.Join(md.Get("traceparent"), ",")
	}
	b := openWith(t, etcd.Config{Endpoints: []string{s.Addr}, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			note(ctx, method)
			return next(ctx, method, req, reply, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			note(ctx, method)
			return open(ctx, desc, cc, method, o...)
		}),
	}})
	name := unique("traced")
	l, _, err := b.Claim(backend.WithTraceparent(limited(t), header), newClaim(name, false))
	ok(t, err)
	for _, kv := range append(s.Keys(name), s.Keys(backend.MarkPrefix)...) {
		if strings.Contains(kv.String(), id) {
			t.Errorf("the header is in the key %v", kv)
		}
	}
	ok(t, renew(t, b, l).Err)
	for method, want := range map[string]string{"LeaseGrant": header, "LeaseKeepAlive": ""} {
		if got, called := headers[method]; got != want || !called {
			t.Errorf("%s: called: %v, with %q, want %q", method, called, got, want)
		}
	}
	ok(t, b.Finish(backend.WithTraceparent(limited(t), header), l, backend.Finish{Tick: tick(1)}))
	if got := headers["Txn"]; got != header {
		t.Errorf("Txn carries %q", got)
	}
	for _, ctx := range []context.Context{limited(t), backend.WithTraceparent(limited(t), header+"\n")} {
		ok(t, b.Release(ctx, l))
		if got := headers["LeaseRevoke"]; got != "" {
			t.Errorf("without a valid header, LeaseRevoke carries %q", got)
		}
	}
}
