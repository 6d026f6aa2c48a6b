package etcd

import (
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// failure is the outcome of a request that did not succeed. nil is success.
type failure struct{ endpoints.Outcome }

// failureOf returns the failure in an outcome, or nil if it is a success.
func failureOf(o endpoints.Outcome) *failure {
	if o.Err == nil {
		return nil
	}
	return &failure{o}
}

// says reports whether err is this error of etcd's. It compares texts, which are the names of etcd's errors: versions of etcd
// differ in the codes.
func says(err, want error) bool {
	return err != nil && status.Convert(err).Message() == status.Convert(want).Message()
}

// says reports whether the last attempt failed with this error of etcd's.
func (f *failure) says(want error) bool { return f != nil && says(f.Err, want) }

// harmless returns the failure of a request without effect.
func (f *failure) harmless() *failure {
	if f != nil {
		f.Maybe = false
	}
	return f
}

// elsewhere are the answers of a member that cannot serve a request now. The request had no effect.
var elsewhere = []error{
	rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCNotLeader, rpctypes.ErrGRPCNotCapable,
	rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrGRPCRequestTooManyRequests,
}

// isElsewhere implements the Elsewhere of [endpoints.Store].
func isElsewhere(err error) bool {
	for _, e := range elsewhere {
		if says(err, e) {
			return true
		}
	}
	return false
}

// answered implements the Answered of [endpoints.Store].
func answered(err error) bool {
	if endpoints.IsContextError(err) || isElsewhere(err) {
		return false
	}
	return endpoints.Refuses(err) || status.Code(err) == codes.ResourceExhausted
}

// kindOf implements the Kind of [endpoints.Store].
func kindOf(err error) error {
	switch {
	case says(err, rpctypes.ErrGRPCPermissionDenied):
		return backend.ErrDenied
	case says(err, rpctypes.ErrGRPCAuthFailed), says(err, rpctypes.ErrGRPCUserEmpty), says(err, rpctypes.ErrGRPCInvalidAuthToken):
		return backend.ErrUnauthenticated
	case endpoints.Refuses(err) && !isElsewhere(err):
		return backend.ErrInvalid
	}
	return backend.ErrUnavailable
}

func isUnknown(err error) bool { return errors.Is(err, backend.ErrUnknownOutcome) }
