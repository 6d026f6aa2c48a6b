package remote_test

import (
	"context"
	"path"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// A request carries the header of its call, unless it shares a stream with the requests of other calls.
func TestRequestsOfTheirOwnCarryTheTraceparent(t *testing.T) {
	const header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	s := startStore(t)
	var mu sync.Mutex
	headers := make(map[string]string) // of the last call of each method
	note := func(ctx context.Context, method string) {
		mu.Lock()
		defer mu.Unlock()
		md, _ := metadata.FromOutgoingContext(ctx)
		headers[path.Base(method)] = strings.Join(md.Get("traceparent"), ",")
	}
	b := openWith(t, remote.Config{Endpoints: []string{s.Addr}, DialOptions: []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, o ...grpc.CallOption) error {
			note(ctx, method)
			return next(ctx, method, req, reply, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			note(ctx, method)
			return open(ctx, desc, cc, method, o...)
		}),
	}})
	ctx := backend.WithTraceparent(limited(t), header)
	name := unique("traced")
	l, g, err := b.Claim(ctx, newClaim(name, false))
	ok(t, err)
	ok(t, b.Renew(ctx, []backend.Lease{l}, func(_ int, r backend.Renewal) { ok(t, r.Err) }))
	_, err = b.Get(ctx, name)
	ok(t, err)
	ok(t, b.Revoke(ctx, name, g.Token, "", true))
	for method, want := range map[string]string{"Get": header, "Revoke": header, "Hold": "", "Renew": ""} {
		if got, called := headers[method]; got != want || !called {
			t.Errorf("%s: called: %v, with %q, want %q", method, called, got, want)
		}
	}
	_, err = b.Get(limited(t), name)
	ok(t, err)
	if got := headers["Get"]; got != "" {
		t.Errorf("without a header, Get carries %q", got)
	}
}
