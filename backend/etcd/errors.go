package etcd

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// failure is what a request came to that did not succeed.
type failure struct {
	err   error // of the last attempt: a status, or why the context ended
	maybe bool  // an attempt may have had an effect, or may have it yet
}

// says says whether err is this error of etcd's. Code and text are compared, but for the code of what
// versions of etcd answer differently: the text is the name of an error.
func says(err, want error) bool {
	return err != nil && status.Convert(err).Message() == status.Convert(want).Message()
}

// harmless is the failure of a request that has no effect.
func (f *failure) harmless() *failure {
	if f != nil {
		f.maybe = false
	}
	return f
}

func (f *failure) says(want error) bool { return f != nil && says(f.err, want) }

// elsewhere are answers that say nothing about the request: another member may do it, or the same one later.
// It had no effect.
var elsewhere = []error{
	rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCNotLeader, rpctypes.ErrGRPCNotCapable,
	rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrGRPCRequestTooManyRequests,
}

func isElsewhere(err error) bool {
	for _, e := range elsewhere {
		if says(err, e) {
			return true
		}
	}
	return false
}

// answered says whether err is the member's last word on the request, which then had no effect.
func answered(err error) bool {
	if endpoints.IsContextError(err) || isElsewhere(err) {
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated, codes.ResourceExhausted:
		return true
	}
	return false
}

// read turns the failure of a request without effect into an error for the caller.
func (f *failure) read(what string) error {
	switch {
	case errors.Is(f.err, backend.ErrClosed):
		return fmt.Errorf("%s: %w", what, f.err)
	case endpoints.IsContextError(f.err):
		return fmt.Errorf("%s: %w", what, f.err)
	}
	return fmt.Errorf("%w: %s: %s", kindOf(f.err), what, text(f.err))
}

// write is read for a request with an effect, and for one that stands among such.
func (f *failure) write(what string) error {
	if !f.maybe {
		return f.read(what)
	}
	if endpoints.IsContextError(f.err) {
		return fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, what, f.err)
	}
	return fmt.Errorf("%w: %s: %s", backend.ErrUnknownOutcome, what, text(f.err))
}

func kindOf(err error) error {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		if !isElsewhere(err) {
			return backend.ErrInvalid
		}
	}
	return backend.ErrUnavailable
}

// text is what went wrong, in etcd's words, or gRPC's.
func text(err error) string { return backend.Printable(said(err)) }

func said(err error) string {
	if s, ok := status.FromError(err); ok {
		if s.Code() == codes.DeadlineExceeded {
			return "no answer in time"
		}
		return s.Message()
	}
	return err.Error()
}

func isUnknown(err error) bool { return errors.Is(err, backend.ErrUnknownOutcome) }
