package remote

import (
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// errorDomain is the domain of the details in our server's errors.
const errorDomain = "leasekeeper"

// reasonOf returns the reason that our server gives in an error, or ERROR_REASON_UNSPECIFIED if it gives none.
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

// allMembersNew says what to do if the leader cannot log a request, because another member may not know it.
const allMembersNew = "all members of the cluster must run this version and be reachable"

// kinds has the errors of package backend for the reasons with which our server answers a request for good. A method for
// which a reason means something else handles it before.
var kinds = map[leasekeeperv1.ErrorReason]error{
	leasekeeperv1.ErrorReason_INVALID:         backend.ErrInvalid,
	leasekeeperv1.ErrorReason_LOST:            backend.ErrLost,
	leasekeeperv1.ErrorReason_NOT_HELD:        backend.ErrLost,
	leasekeeperv1.ErrorReason_OTHER_TOKEN:     backend.ErrLost,
	leasekeeperv1.ErrorReason_PINNED:          backend.ErrPinned,
	leasekeeperv1.ErrorReason_NO_WAITER:       backend.ErrInvalid,
	leasekeeperv1.ErrorReason_LEASE_TAKEN:     backend.ErrInvalid,
	leasekeeperv1.ErrorReason_CORRUPT:         backend.ErrCorrupt,
	leasekeeperv1.ErrorReason_DENIED:          backend.ErrDenied,
	leasekeeperv1.ErrorReason_UNAUTHENTICATED: backend.ErrUnauthenticated,
	leasekeeperv1.ErrorReason_UNSUPPORTED:     &backend.UnsupportedError{Backend: Scheme, What: "a request of this version", Instead: allMembersNew},
}

// isElsewhere implements the Elsewhere of [endpoints.Store].
func isElsewhere(err error) bool {
	switch reasonOf(err) {
	case leasekeeperv1.ErrorReason_UNAVAILABLE, leasekeeperv1.ErrorReason_OVERLOADED, leasekeeperv1.ErrorReason_RIGHTS_CHANGED,
		leasekeeperv1.ErrorReason_QUOTA_EXHAUSTED:
		return true
	}
	return says(err, rpctypes.ErrGRPCAuthOldRevision)
}

// answered implements the Answered of [endpoints.Store].
func answered(err error) bool {
	if endpoints.IsContextError(err) || isElsewhere(err) {
		return false
	}
	if reason := reasonOf(err); reason != leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return kinds[reason] != nil
	}
	return endpoints.Refuses(err) || status.Code(err) == codes.ResourceExhausted
}

// kindOf implements the Kind of [endpoints.Store]. A refusal without a reason comes from our server's API of etcd, or not from our
// server.
func kindOf(err error) error {
	if kind := kinds[reasonOf(err)]; kind != nil {
		return kind
	}
	switch {
	case !answered(err) || !endpoints.Refuses(err):
		return backend.ErrUnavailable
	case status.Code(err) == codes.PermissionDenied:
		return backend.ErrDenied
	case status.Code(err) == codes.Unauthenticated, says(err, rpctypes.ErrGRPCUserEmpty), says(err, rpctypes.ErrGRPCAuthFailed):
		return backend.ErrUnauthenticated
	}
	return backend.ErrInvalid
}

// errTokenRefused returns the error of a request or a stream whose token is no longer valid. It had no effect, and the next
// attempt asks for another token. The error is always the same. The first call makes it, because that takes longer than
// the rest of this package's initialization.
var errTokenRefused = sync.OnceValue(func() error {
	return refusal(codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "the token of the user is no longer valid; the next attempt asks for another one")
})

// needsToken reports whether our server says that a request may succeed with another token.
func needsToken(err error) bool {
	reason := reasonOf(err)
	return reason == leasekeeperv1.ErrorReason_UNAUTHENTICATED || reason == leasekeeperv1.ErrorReason_RIGHTS_CHANGED
}

// refusal returns an error as our server makes it.
func refusal(code codes.Code, reason leasekeeperv1.ErrorReason, text string) error {
	st := status.New(code, text)
	if detailed, err := st.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: reason.String()}); err == nil {
		st = detailed
	}
	return st.Err()
}

// says reports whether err is this error of etcd's API.
func says(err, want error) bool {
	return err != nil && !endpoints.IsContextError(err) && status.Convert(err).Message() == status.Convert(want).Message()
}
