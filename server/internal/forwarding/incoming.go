package forwarding

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"

	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// IncomingConfig is what an [Incoming] needs.
type IncomingConfig struct {
	// Unary and Stream serve a request of another member within the limits of this one.
	Unary  func(ctx context.Context, req any, method string, handle grpc.UnaryHandler) (any, error)
	Stream func(impl any, stream grpc.ServerStream, method string, handle grpc.StreamHandler) error
	// Answer turns an error into the status that the client receives.
	Answer func(ctx context.Context, method string, err error) error
	// Changes reports whether a method can change something.
	Changes func(method string) bool
	// Applied returns the index of the last log entry that this member has applied.
	Applied func() uint64
}

// Incoming serves requests of other members, on the connections between members. Its methods are safe for concurrent
// use.
type Incoming struct {
	IncomingConfig

	mu     sync.Mutex
	open   int
	closed bool
	idle   chan struct{} // closed once Incoming is closed and no request is open
	served uint64

	// cut ends when the open requests are cut off.
	cut    context.Context
	cutOff context.CancelCauseFunc
}

// NewIncoming makes the receiving side of a member.
func NewIncoming(c IncomingConfig) *Incoming {
	in := &Incoming{IncomingConfig: c, idle: make(chan struct{})}
	in.cut, in.cutOff = context.WithCancelCause(context.Background())
	return in
}

// Service returns a service for members. It has the same limits as for clients, and marks each request as a request of
// another member.
func (in *Incoming) Service(desc *grpc.ServiceDesc) *grpc.ServiceDesc {
	own := *desc
	own.Methods = make([]grpc.MethodDesc, len(desc.Methods))
	for i, m := range desc.Methods {
		own.Methods[i] = grpc.MethodDesc{MethodName: m.MethodName, Handler: in.unaryMethod(m)}
	}
	own.Streams = make([]grpc.StreamDesc, len(desc.Streams))
	for i, d := range desc.Streams {
		own.Streams[i] = d
		own.Streams[i].Handler = in.streamMethod("/"+desc.ServiceName+"/"+d.StreamName, d)
	}
	return &own
}

func (in *Incoming) unaryMethod(m grpc.MethodDesc) grpc.MethodHandler {
	return func(impl any, ctx context.Context, decode func(any) error, outer grpc.UnaryServerInterceptor) (any, error) {
		inner := in.unary
		if outer != nil {
			inner = func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
				return outer(ctx, req, info, func(ctx context.Context, req any) (any, error) { return in.unary(ctx, req, info, handle) })
			}
		}
		return m.Handler(impl, ctx, decode, inner)
	}
}

// unary intercepts every unary request of another member. Its trailer shows that member that this one has answered, and
// not a proxy between them.
func (in *Incoming) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	leave, err := in.enter()
	if err == nil {
		defer leave()
		request, end := in.context(ctx)
		defer end()
		var resp any
		resp, err = in.Unary(request, req, info.FullMethod, handle)
		if err == nil {
			if in.Changes(info.FullMethod) {
				_ = grpc.SetTrailer(ctx, appliedTrailer(in.Applied())) // fails only outside a call
			}
			return resp, nil
		}
	}
	_ = grpc.SetTrailer(ctx, verdictTrailer(err)) // fails only outside a call
	return nil, in.Answer(ctx, info.FullMethod, err)
}

func (in *Incoming) streamMethod(method string, d grpc.StreamDesc) grpc.StreamHandler {
	return func(impl any, stream grpc.ServerStream) error {
		leave, err := in.enter()
		if err == nil {
			defer leave()
			request, end := in.context(stream.Context())
			defer end()
			if err = in.Stream(impl, admission.WithContext(request, stream), method, d.Handler); err == nil {
				return nil
			}
		}
		stream.SetTrailer(verdictTrailer(err))
		return in.Answer(stream.Context(), method, err)
	}
}

// context returns the context of a request of another member. It is marked as one, and ends when open requests are cut
// off. The caller must call end.
func (in *Incoming) context(ctx context.Context) (request context.Context, end func()) {
	request, cancel := context.WithCancelCause(admission.MarkPeerRequest(ctx))
	leave := lifetime.EndWith(in.cut, cancel)
	return request, func() { leave(); cancel(nil) }
}

// enter counts a request as open. It refuses the request if the server is stopping, because another member leads, or
// soon will.
func (in *Incoming) enter() (leave func(), err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil, replica.ErrNotLeader
	}
	in.open++
	in.served++
	return in.leave, nil
}

func (in *Incoming) leave() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.open--; in.open == 0 && in.closed {
		close(in.idle)
	}
}

// Served returns the number of accepted requests and streams.
func (in *Incoming) Served() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.served
}

// Close refuses further requests and waits for the open ones. When ctx ends, it cuts them off.
func (in *Incoming) Close(ctx context.Context) error {
	in.mu.Lock()
	if !in.closed {
		in.closed = true
		if in.open == 0 {
			close(in.idle)
		}
	}
	in.mu.Unlock()
	select {
	case <-in.idle:
		return nil
	case <-ctx.Done():
	}
	in.cutOff(lifetime.ErrStopping)
	<-in.idle
	return fmt.Errorf("server: requests of other members were cut off while stopping: %w", context.Cause(ctx))
}
