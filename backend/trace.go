package backend

import "context"

type traceparentKey struct{}

// WithTraceparent returns a context whose requests carry the header traceparent of W3C Trace Context to etcd and to our
// server, as metadata of gRPC. Claims and releases on our server share a stream with those of other calls, and carry it in a
// field. Renewals carry none, because one request renews the leases of many calls. The context has no effect on other stores.
// A header that is not valid is not sent.
func WithTraceparent(ctx context.Context, header string) context.Context {
	return context.WithValue(ctx, traceparentKey{}, header)
}

// Traceparent returns the header that [WithTraceparent] has put into a context, and "" if there is none.
func Traceparent(ctx context.Context) string {
	header, _ := ctx.Value(traceparentKey{}).(string)
	return header
}
