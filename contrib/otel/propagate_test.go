package otellease_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	otellease "github.com/leasekeeper/leasekeeper/contrib/otel"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

// listener is a backend that notes the headers of the claims that it receives.
type listener struct {
	*memory.Backend

	mu      sync.Mutex
	headers []string
}

func (l *listener) Claim(ctx context.Context, c backend.Claim) (backend.Lease, backend.Grant, error) {
	l.mu.Lock()
	l.headers = append(l.headers, backend.Traceparent(ctx))
	l.mu.Unlock()
	return l.Backend.Claim(ctx, c)
}

// take returns the headers since the last call.
func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	headers := l.headers
	l.headers = nil
	return headers
}

func headerOf(span trace.SpanContext) string {
	return "00-" + span.TraceID().String() + "-" + span.SpanID().String() + "-01"
}

func TestClaimsCarryTheirSpan(t *testing.T) {
	bubble(t, func(w *world) {
		l := &listener{Backend: w.store.Backend()}
		k := keepertest.New(w, ttl, l, leasekeeper.WithHolder("a"), leasekeeper.WithTTL(ttl))
		ctx, program := w.span()
		lease, err := w.tracing.Acquire(ctx, k, "x")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := l.take(), headerOf(w.one("leasekeeper.acquire").SpanContext); !slices.Equal(got, []string{want}) {
			t.Errorf("acquiring sends %q, want %q", got, want)
		}
		if trace.SpanContextFromContext(lease.Context()).SpanID() != program.SpanContext().SpanID() {
			t.Error("the context of the lease carries another span than that of the caller")
		}
		if err := lease.Release(ctx); err != nil {
			t.Fatal(err)
		}
		err = w.tracing.Run(ctx, k, "x", func(context.Context, *leasekeeper.Lease) error { return nil })
		if got, want := l.take(), headerOf(w.one("leasekeeper.run").SpanContext); err != nil || !slices.Equal(got, []string{want}) {
			t.Errorf("%v, and running sends %q, want %q", err, got, want)
		}
		for _, c := range []struct {
			what string
			ctx  context.Context
			want string
		}{
			{"propagated", otellease.Propagate(ctx), headerOf(program.SpanContext())},
			{"not propagated", ctx, ""},
			{"without a span", otellease.Propagate(w.Context()), ""},
		} {
			lease, err := k.Acquire(c.ctx, "x")
			if err != nil {
				t.Fatal(err)
			}
			if got := l.take(); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%s: %q, want %q", c.what, got, c.want)
			}
			if err := lease.Release(w.Context()); err != nil {
				t.Fatal(err)
			}
		}
		program.End()
	})
}
