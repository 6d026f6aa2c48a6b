package tracing

import (
	"context"
	"log/slog"
	"net/http"

	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/internal/traceparent"
)

// header returns the header of a request, "" if the request has no valid one.
func header(ctx context.Context) string {
	return only(metadata.ValueFromIncomingContext(ctx, traceparent.Key))
}

// only returns the value of a header that was sent once and is valid.
func only(values []string) string {
	if len(values) != 1 || !traceparent.Valid(values[0]) {
		return ""
	}
	return values[0]
}

// IDOf returns the trace id of a request, "" if the request is not traced.
func IDOf(ctx context.Context) string { return traceparent.TraceID(header(ctx)) }

// Log returns the logger for lines about a request. They have the trace id as trace_id, if the request is traced.
func Log(ctx context.Context, log *slog.Logger) *slog.Logger {
	return LogID(IDOf(ctx), log)
}

// LogID is [Log] for a request with that trace id; "" if the request is not traced.
func LogID(id string, log *slog.Logger) *slog.Logger {
	if id != "" {
		return log.With("trace_id", id)
	}
	return log
}

// Forward adds the header of a request to the metadata of a call to another member.
func Forward(ctx context.Context) context.Context {
	if h := header(ctx); h != "" {
		return metadata.AppendToOutgoingContext(ctx, traceparent.Key, h)
	}
	return ctx
}

// Metadata returns the metadata that carries the header of an HTTP request through the gateway.
func Metadata(r *http.Request) metadata.MD {
	if h := only(r.Header.Values(traceparent.Key)); h != "" {
		return metadata.Pairs(traceparent.Key, h)
	}
	return nil
}
