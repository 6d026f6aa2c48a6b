package backend

import "context"

type traceparentKey struct{}

// WithTraceparent returns a context whose requests carry the header traceparent of W3C Trace Context to etcd and to our
// server, as metadata of gRPC. It has no effect on other stores, and none on requests that share a stream with others: claims,
// releases and renewals on our server, and renewals on etcd. A header that is not valid is not sent.
func WithTraceparent(ctx context.Context, header string) context.Context {
	return context.WithValue(ctx, traceparentKey{}, header)
}

// Traceparent returns the header that [WithTraceparent] has put into a context, and "" if there is none.
func Traceparent(ctx context.Context) string {
	header, _ := ctx.Value(traceparentKey{}).(string)
	return header
}
