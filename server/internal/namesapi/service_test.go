package namesapi

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testRequests is the bound of requests, and of places, of a service in a test.
const testRequests = 1024

// uncounted discards metrics.
type uncounted struct{}

func (uncounted) OpenWatch() func()             { return func() {} }
func (uncounted) OpenKeepAlive() func()         { return func() {} }
func (uncounted) OpenHold() func()              { return func() {} }
func (uncounted) Count(string, codes.Code, int) {}
func (uncounted) Refuse(string)                 {}

// allRights permits everything.
type allRights struct{}

func (allRights) MayName(ctx context.Context, _ string, _ access.Rights) (context.Context, error) {
	return ctx, nil
}
func (allRights) MayNames(context.Context, string, access.Rights) error { return nil }
func (allRights) ReadPolicy(context.Context) (*access.Policy, access.Caller, error) {
	return nil, access.Caller{}, nil
}
func (allRights) CountClaim(context.Context) error { return nil }
func (allRights) CountWatcher(context.Context, *admission.ConnectionWatchers) error {
	return nil
}

// startService returns a service on a real member.
func startService(t *testing.T) *Service {
	t.Helper()
	member, err := node.Start(t.Context(), node.Config{Dir: t.TempDir()})
	wantOK(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := member.Stop(ctx); err != nil {
			t.Errorf("stopping the node: %v", err)
		}
	})
	<-member.Ready()
	return New(Config{
		Member: member, Rights: allRights{}, Metrics: uncounted{}, Log: slog.New(slog.DiscardHandler), Lifetime: lifetime.New(nil),
		Requests: admission.NewRequests(testRequests), Places: admission.NewPlaces(testRequests), Watchers: admission.NewWatchers(8),
		RequestTimeout: time.Minute, MaxTTL: time.Hour, MaxStreams: testRequests,
	})
}

// hold claims a name, and waits in its queue if it is held.
func hold(t *testing.T, s *Service, name string, lease lessor.ID) {
	t.Helper()
	_, err := s.cfg.Member.Claim(t.Context(), ownership.Claim{Name: name, Lease: lease, TTL: time.Minute, Wait: true})
	wantOK(t, err)
}

func release(t *testing.T, s *Service, name string, lease lessor.ID) {
	t.Helper()
	_, err := s.cfg.Member.Release(t.Context(), name, lease)
	wantOK(t, err)
}

// holderOf returns the lease that holds a name.
func holderOf(t *testing.T, s *Service, name string) lessor.ID {
	t.Helper()
	states, err := s.cfg.Member.Names(t.Context(), []string{name})
	wantOK(t, err)
	return states.Names[0].Lease
}

func wantOK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantEqual[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}
