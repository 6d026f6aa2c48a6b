package remote

import (
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// errorDomain is that of the details of our service's errors.
const errorDomain = "leasekeeper"

// outcome is what the attempts at a request came to.
type outcome struct {
	err   error // of the last attempt: nil, a status, or why the context ended
	maybe bool  // an earlier attempt may have had an effect, or may have it yet; with err, this one too
}

// reasonOf returns what our server says an error means.
func reasonOf(err error) leasekeeperv1.ErrorReason {
	s, ok := status.FromError(err)
	if !ok || s.Code() == codes.OK {
		return leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == errorDomain {
			return leasekeeperv1.ErrorReason(leasekeeperv1.ErrorReason_value[info.Reason])
		}
	}
	return leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED
}

func (o outcome) reason() leasekeeperv1.ErrorReason { return reasonOf(o.err) }

// kinds is what the last words of our server are for the caller. Where a method means something else by one
// it says so itself.
var kinds = map[leasekeeperv1.ErrorReason]error{
	leasekeeperv1.ErrorReason_INVALID:     backend.ErrInvalid,
	leasekeeperv1.ErrorReason_LOST:        backend.ErrLost,
	leasekeeperv1.ErrorReason_NOT_HELD:    backend.ErrLost,
	leasekeeperv1.ErrorReason_OTHER_TOKEN: backend.ErrLost,
	leasekeeperv1.ErrorReason_PINNED:      backend.ErrPinned,
	leasekeeperv1.ErrorReason_NO_WAITER:   backend.ErrInvalid,
	leasekeeperv1.ErrorReason_LEASE_TAKEN: backend.ErrInvalid,
}

// isElsewhere says whether err says nothing about the request: another endpoint may do it, or the same one
// later. It had no effect.
func isElsewhere(err error) bool {
	switch reasonOf(err) {
	case leasekeeperv1.ErrorReason_UNAVAILABLE, leasekeeperv1.ErrorReason_OVERLOADED:
		return true
	}
	return false
}

// answered says whether err is the server's last word on the request, which then had no effect.
func answered(err error) bool {
	if endpoints.IsContextError(err) {
		return false
	}
	if reason := reasonOf(err); reason != leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return kinds[reason] != nil
	}
	return refuses(err) || status.Code(err) == codes.ResourceExhausted
}

// refuses says whether err is a refusal by somebody who does not give reasons as our server does.
func refuses(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.FailedPrecondition,
		codes.OutOfRange, codes.Unimplemented, codes.Unauthenticated:
		return true
	}
	return false
}

func kindOf(err error) error {
	if kind := kinds[reasonOf(err)]; kind != nil {
		return kind
	}
	if reasonOf(err) == leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED && refuses(err) {
		return backend.ErrInvalid
	}
	return backend.ErrUnavailable
}

// read turns the failure of a request without effect into an error for the caller.
func (o outcome) read(what string) error {
	if short := (*endpoints.CutShort)(nil); errors.As(o.err, &short) {
		return fmt.Errorf("%s: %w; before that %w: %s", what, o.err, backend.ErrUnavailable, text(short.Refusal))
	}
	if errors.Is(o.err, backend.ErrClosed) || endpoints.IsContextError(o.err) {
		return fmt.Errorf("%s: %w", what, o.err)
	}
	return fmt.Errorf("%w: %s: %s", kindOf(o.err), what, text(o.err))
}

// write is read for a request with an effect. What the server said last counts for all attempts: of the
// earlier ones those that had an effect would have had the same.
func (o outcome) write(what string) error {
	switch {
	case !o.maybe, answered(o.err):
		return o.read(what)
	case endpoints.IsContextError(o.err), errors.Is(o.err, backend.ErrClosed):
		return fmt.Errorf("%w: %s: %w", backend.ErrUnknownOutcome, what, o.err)
	}
	return fmt.Errorf("%w: %s: %s", backend.ErrUnknownOutcome, what, text(o.err))
}

// text is what went wrong, in the server's words, or gRPC's.
func text(err error) string { return backend.Printable(said(err)) }

func said(err error) string {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err.Error()
	case s.Code() == codes.DeadlineExceeded:
		return "no answer in time"
	case s.Code() == codes.Unimplemented:
		return "that is not a Leasekeeper server, or an older one: for plain etcd write etcd:// (" + s.Message() + ")"
	}
	return s.Message()
}
