package endpoints

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/traceparent"
)

// traced returns a context whose outgoing metadata has the header of [backend.WithTraceparent], if the context has a valid one.
func traced(ctx context.Context) context.Context {
	header := backend.Traceparent(ctx)
	if !traceparent.Valid(header) {
		return ctx
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	if md == nil {
		md = metadata.MD{}
	}
	md.Set(traceparent.Key, header)
	return metadata.NewOutgoingContext(ctx, md)
}

// tracing are the dial options that make requests carry the header. A stream that many callers share has a context of its
// own, so it carries none.
func tracing() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, o ...grpc.CallOption) error {
			return invoke(traced(ctx), method, req, reply, cc, o...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, o ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(traced(ctx), desc, cc, method, o...)
		}),
	}
}
