package endpoints

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
)

// ErrStalled ends a stream on which the store is silent for too long.
var ErrStalled = errors.New("no answer in time")

// Outcome is what the attempts at a request came to.
type Outcome struct {
	Err error // of the last attempt: nil, a status, or why the context ended
	// Maybe: an earlier attempt may have had an effect, or may still have one; with Err, so may the last attempt.
	Maybe bool

	store *Store
}

// Outcome returns the outcome of a single attempt without effect, which failed with err.
func (s *Store) Outcome(err error) Outcome { return Outcome{Err: err, store: s} }

// Read returns the error for the caller of a failed request without effect. what names the request.
func (o Outcome) Read(what string) error {
	if short := (*CutShort)(nil); errors.As(o.Err, &short) {
		return fmt.Errorf("%s: %w; before that %w: %s", what, o.Err, backend.ErrUnavailable, o.store.Text(short.Refusal))
	}
	if errors.Is(o.Err, backend.ErrClosed) || IsContextError(o.Err) {
		return fmt.Errorf("%s: %w", what, o.Err)
	}
	return fmt.Errorf("%w: %s: %s", o.store.Kind(o.Err), what, o.store.Text(o.Err))
}

// Write is Read for a request with an effect. It returns a [backend.ErrUnknownOutcome] if an attempt may have had that
// effect.
func (o Outcome) Write(what string) error {
	switch {
	case !o.Maybe, o.store.FinalForAll && o.store.Answered(o.Err):
		return o.Read(what)
	case IsContextError(o.Err), errors.Is(o.Err, backend.ErrClosed):
		return fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, what, o.Err)
	}
	return fmt.Errorf("%w: %s: %s", backend.ErrUnknownOutcome, what, o.store.Text(o.Err))
}

// Refuses reports whether the code of an error is a refusal: the same request would fail again.
func Refuses(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	}
	return false
}

// Text returns what went wrong, in the words of the store or of gRPC, with control characters escaped.
func (s *Store) Text(err error) string {
	st, ok := status.FromError(err)
	text := st.Message()
	switch {
	case !ok:
		text = err.Error()
	case st.Code() == codes.DeadlineExceeded:
		text = ErrStalled.Error()
	case st.Code() == codes.Unimplemented && s.Foreign != "":
		text = s.Foreign + " (" + text + ")"
	}
	return backend.Printable(text)
}

// Call makes a call with one answer, and reports whether the request may have left. gRPC knows the peer exactly if it opened
// a stream on a connection. A call with more than one answer must not use this: gRPC sets its peer at any time.
func Call(call func(peer grpc.CallOption) error) (sent bool, err error) {
	var p peer.Peer
	err = call(grpc.Peer(&p))
	return p.Addr != nil, err
}

// IsContextError reports whether err is that of a context, and nothing else.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Ended returns why a context has ended, or nil if it has not.
func Ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}
