package namesapi

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/api/leasekeeperv1"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// nameRefusal maps an error of the member to the code, the reason and the metric label of a refusal in leasekeeper.v1.
type nameRefusal struct {
	err     error
	code    codes.Code
	reason  leasekeeperv1.ErrorReason
	label   string // metric label; "" if the client left
	ownText bool   // the client receives the text of the actual error, not that of err
}

// nameRefusals is the only place where errors of the member become errors of leasekeeper.v1. The first matching row
// counts.
var nameRefusals = []nameRefusal{
	{replica.ErrUnknownOutcome, codes.DeadlineExceeded, leasekeeperv1.ErrorReason_UNKNOWN_OUTCOME, "unknown_outcome", false},
	{replica.ErrNoLeader, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "no_leader", false},
	{replica.ErrNotLeader, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "leader_changed", false},
	{replica.ErrHandOver, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "hand_over", false},
	{replica.ErrLeaseExpired, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "lease_expired", false},
	{replica.ErrChanging, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "changing", false},
	{replica.ErrHeldOff, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "held_off", false},
	{replica.ErrNoMember, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID, "invalid", false},
	{replica.ErrFounding, codes.FailedPrecondition, leasekeeperv1.ErrorReason_INVALID, "invalid", true},
	{keyspace.ErrReplaced, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "catching_up", false},
	{lifetime.ErrLeaderChanged, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "leader_changed", false},
	{node.ErrStopped, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "stopped", false},
	{replica.ErrTooManyRequests, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonRequests, false},
	{admission.ErrNoPlaces, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonPlaces, false},
	{admission.ErrShareTaken, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonShare, false},
	{replica.ErrTooManyLeases, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, "too_many_leases", false},
	{errTooManyNameWatchers, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonWatchers, false},
	{replica.ErrNoMemory, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonMemory, false},
	{admission.ErrAnswersWait, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonMemory, false},
	{admission.ErrNoAnswers, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonMemory, false},
	{admission.ErrRequestsWait, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonMemory, false},
	{admission.ErrNoRequests, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonMemory, false},
	{admission.ErrNoStreams, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, admission.ReasonMemory, false},
	{replica.ErrTooNew, codes.FailedPrecondition, leasekeeperv1.ErrorReason_UNSUPPORTED, "too_new", false},
	{replica.ErrNoSpace, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, "no_space", false},

	{access.ErrQuota, codes.ResourceExhausted, leasekeeperv1.ErrorReason_QUOTA_EXHAUSTED, "quota", true},
	{access.ErrInvalidQuota, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID, "invalid", false},
	{access.ErrPermissionDenied, codes.PermissionDenied, leasekeeperv1.ErrorReason_DENIED, "denied", false},
	{access.ErrUserEmpty, codes.Unauthenticated, leasekeeperv1.ErrorReason_UNAUTHENTICATED, "denied", false},
	{access.ErrUserNotFound, codes.PermissionDenied, leasekeeperv1.ErrorReason_DENIED, "denied", false},
	{login.ErrInvalidToken, codes.Unauthenticated, leasekeeperv1.ErrorReason_UNAUTHENTICATED, "login", false},
	{access.ErrOldRevision, codes.Unauthenticated, leasekeeperv1.ErrorReason_RIGHTS_CHANGED, "old_revision", false},
	{access.ErrRoleNotFound, codes.NotFound, leasekeeperv1.ErrorReason_INVALID, "users", false},
	{access.ErrRightNotGranted, codes.FailedPrecondition, leasekeeperv1.ErrorReason_INVALID, "users", false},
	{access.ErrTooLarge, codes.ResourceExhausted, leasekeeperv1.ErrorReason_OVERLOADED, "users", false},

	{backend.ErrInvalid, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID, "invalid", true},
	{replica.ErrTooLarge, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID, "too_large", false},
	{ownership.ErrInvalidClaim, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID, "invalid", false},
	{lessor.ErrTTLTooLarge, codes.InvalidArgument, leasekeeperv1.ErrorReason_INVALID, "ttl_too_large", false},
	{backend.ErrCorrupt, codes.DataLoss, leasekeeperv1.ErrorReason_CORRUPT, "corrupt_mark", true},
	{ownership.ErrLost, codes.NotFound, leasekeeperv1.ErrorReason_LOST, "lost", true},
	{lessor.ErrRenewalRefused, codes.NotFound, leasekeeperv1.ErrorReason_LOST, "lost", false},
	{ownership.ErrNotHeld, codes.FailedPrecondition, leasekeeperv1.ErrorReason_NOT_HELD, "not_held", false},
	{ownership.ErrOtherToken, codes.FailedPrecondition, leasekeeperv1.ErrorReason_OTHER_TOKEN, "other_token", false},
	{ownership.ErrPinned, codes.FailedPrecondition, leasekeeperv1.ErrorReason_PINNED, "pinned", false},
	{ownership.ErrNobodyWaits, codes.FailedPrecondition, leasekeeperv1.ErrorReason_NO_WAITER, "nobody_waits", false},
	{ownership.ErrNotWaiting, codes.FailedPrecondition, leasekeeperv1.ErrorReason_NO_WAITER, "nobody_waits", false},
	{ownership.ErrNotOvertaken, codes.FailedPrecondition, leasekeeperv1.ErrorReason_INVALID, "invalid", false},
	{ownership.ErrLongQueue, codes.FailedPrecondition, leasekeeperv1.ErrorReason_INVALID, "invalid", false},
	{ownership.ErrLeaseTaken, codes.AlreadyExists, leasekeeperv1.ErrorReason_LEASE_TAKEN, "lease_taken", false},

	{context.Canceled, codes.Canceled, leasekeeperv1.ErrorReason_UNAVAILABLE, "", false},
	// The request was not submitted to the member. Otherwise its error would be an unknown outcome.
	{context.DeadlineExceeded, codes.Unavailable, leasekeeperv1.ErrorReason_UNAVAILABLE, "timeout", false},
}

// errorDomain is the domain in the ErrorInfo of an error of leasekeeper.v1.
const errorDomain = "leasekeeper"

// Owns reports whether a method belongs to leasekeeper.v1, that is to names or members.
func Owns(method string) bool {
	return strings.HasPrefix(method, "/"+leasekeeperv1.Leasekeeper_ServiceDesc.ServiceName+"/") ||
		strings.HasPrefix(method, "/"+leasekeeperv1.Members_ServiceDesc.ServiceName+"/")
}

// Reasons returns the reasons under which this package counts what it refuses.
func Reasons() []string {
	reasons := []string{reasonInternal}
	for _, r := range nameRefusals {
		if r.label != "" {
			reasons = append(reasons, r.label)
		}
	}
	return reasons
}

// reasonInternal is the metric label of unexpected errors.
const reasonInternal = "internal"

// Answer turns an error into the status that a client receives. It counts each refusal, and logs unexpected errors.
func (s *Service) Answer(ctx context.Context, err error) error {
	code, reason, text := s.refuse(tracing.Log(ctx, s.cfg.Log), err)
	if reason == leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED {
		return status.Error(code, text)
	}
	return nameStatus(code, reason, text)
}

// refuse returns the parts of a refusal. An error of gRPC itself has no reason.
func (s *Service) refuse(log *slog.Logger, err error) (code codes.Code, reason leasekeeperv1.ErrorReason, text string) {
	for i := range nameRefusals {
		row := &nameRefusals[i]
		if !errors.Is(err, row.err) {
			continue
		}
		if row.label != "" {
			s.cfg.Metrics.Refuse(row.label)
		}
		text := row.err.Error()
		if row.ownText {
			text = err.Error()
		}
		return row.code, row.reason, text
	}
	// This is an error of gRPC itself: the client has gone, or has sent a message that cannot be decoded.
	if st, ok := status.FromError(err); ok {
		return st.Code(), leasekeeperv1.ErrorReason_ERROR_REASON_UNSPECIFIED, st.Message()
	}
	s.cfg.Metrics.Refuse(reasonInternal)
	log.Error("a request failed with an unexpected error: please report it", "error", err)
	return codes.Internal, leasekeeperv1.ErrorReason_INTERNAL, "internal error, see the server's log"
}

func nameStatus(code codes.Code, reason leasekeeperv1.ErrorReason, text string) error {
	st := status.New(code, text)
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{Domain: errorDomain, Reason: reason.String()})
	if err != nil {
		return st.Err() // cannot happen, because the details can be marshalled
	}
	return detailed.Err()
}
