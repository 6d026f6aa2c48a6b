package remote

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
)

// A refusal for want of a right is final, and one because rights changed meanwhile is repeated.
func TestRefusalsOfUsersHaveTheirKinds(t *testing.T) {
	reason := func(code codes.Code, r leasekeeperv1.ErrorReason) error {
		st, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: r.String()})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	for _, c := range []struct {
		err   error
		kind  error
		final bool
	}{
		{reason(codes.PermissionDenied, leasekeeperv1.ErrorReason_DENIED), backend.ErrDenied, true},
		{reason(codes.Unauthenticated, leasekeeperv1.ErrorReason_UNAUTHENTICATED), backend.ErrUnauthenticated, true},
		{reason(codes.Unauthenticated, leasekeeperv1.ErrorReason_RIGHTS_CHANGED), backend.ErrUnavailable, false},
		{rpctypes.ErrGRPCPermissionDenied, backend.ErrDenied, true},
		{rpctypes.ErrGRPCUserEmpty, backend.ErrUnauthenticated, true},
		{rpctypes.ErrGRPCAuthOldRevision, backend.ErrUnavailable, false},
		{status.Error(codes.InvalidArgument, "no"), backend.ErrInvalid, true},
	} {
		if kindOf(c.err) != c.kind || answered(c.err) != c.final || isElsewhere(c.err) == c.final {
			t.Errorf("%v: kind %v, final %v, elsewhere %v", c.err, kindOf(c.err), answered(c.err), isElsewhere(c.err))
		}
	}
}

// A renewal that is denied ends the lease at once, and says why.
func TestDeniedRenewalLosesTheLease(t *testing.T) {
	b := new(Backend)
	var got error
	r := b.newRound([]backend.Lease{&lease{b: b, wire: "n"}}, func(_ int, n backend.Renewal) { got = n.Err })
	r.refuse(0, &leasekeeperv1.RefusedRenewal{State: leasekeeperv1.RefusedRenewal_DENIED})
	if !errors.Is(got, backend.ErrLost) || !errors.Is(got, backend.ErrDenied) || r.retryLater {
		t.Errorf("%v, again later: %v", got, r.retryLater)
	}
}
