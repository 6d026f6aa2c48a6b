package otellease

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/leasekeeper/leasekeeper/backend"
)

// Propagate returns a context whose requests tell etcd and our server the span that the context carries, in the header
// traceparent of W3C Trace Context. The calls of a [Tracer] do so by themselves. Propagate is for other calls of a keeper:
//
//	err := keeper.Revoke(otellease.Propagate(ctx), "jobs/backup", …)
//
// [backend.WithTraceparent] says which requests carry the header.
func Propagate(ctx context.Context) context.Context {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return ctx
	}
	return backend.WithTraceparent(ctx, "00-"+span.TraceID().String()+"-"+span.SpanID().String()+"-"+span.TraceFlags().String())
}
