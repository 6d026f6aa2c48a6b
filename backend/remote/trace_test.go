package remote_test

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/remote"
)

// sentHolds is a Hold stream that notes the header of each claim and release that it sends.
type sentHolds struct {
	grpc.ClientStream
	note func(what, header string)
}

func (s sentHolds) SendMsg(m any) error {
	if req, ok := m.(*leasekeeperv1.HoldRequest); ok {
		for _, c := range req.Claims {
			s.note("claim", c.Traceparent)
		}
		for _, r := range req.Releases {
			s.note("release", r.Traceparent)
		}
	}
	return s.ClientStream.SendMsg(m)
}

// Claims and releases share a stream with those of other calls. Each carries the header of its own call.
func TestClaimsAndReleasesCarryTheTraceparentOfTheirCall(t *testing.T) {
	const header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	s := startStore(t)
	var mu sync.Mutex
	var sent []string
	note := func(what, header string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, what+" "+header)
	}
	b := openWith(t, remote.Config{Endpoints: []string{s.Addr}, DialOptions: []grpc.DialOption{
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := open(ctx, desc, cc, method, o...)
			return sentHolds{s, note}, err
		}),
	}})
	name := unique("traced")
	for _, c := range []struct{ header, want string }{{header, header}, {"", ""}, {header + "0", ""}} {
		ctx := backend.WithTraceparent(limited(t), c.header)
		l, _, err := b.Claim(ctx, newClaim(name, false))
		ok(t, err)
		ok(t, b.Release(ctx, l))
		mu.Lock()
		if want := []string{"claim " + c.want, "release " + c.want}; !slices.Equal(sent, want) {
			t.Errorf("sent %q, want %q", sent, want)
		}
		sent = nil
		mu.Unlock()
	}
}

// Other requests carry the header as metadata, unless they share a stream with the requests of other calls.
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
