package backend_test

import (
	"context"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

func TestRequestCarriesTheTraceparentOfItsCaller(t *testing.T) {
	const header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx := backend.WithTraceparent(t.Context(), header)
	r := backend.NewRequest(ctx, context.Background(), time.Minute)
	defer r.End()
	if got := backend.Traceparent(r); got != header {
		t.Errorf("the request has %q", got)
	}
	if got := backend.Traceparent(t.Context()); got != "" {
		t.Errorf("a context without a header has %q", got)
	}
}
