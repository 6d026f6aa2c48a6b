package etcdapi

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
	"github.com/leasekeeper/leasekeeper/server/internal/login"
	"github.com/leasekeeper/leasekeeper/server/internal/tracing"
)

// refusal maps an error of the member to the status that the client receives, and to the reason under which the refusal
// is counted.
type refusal struct {
	err    error
	status error
	reason string // a metric label, never chosen by a client; "" if the client left
}

// refusals is the only place where errors of the member become errors of etcd. The first matching row counts. An
// unknown outcome can wrap a context error. Its row comes first, so that it never looks like a failure of the command.
var refusals = []refusal{
	{replica.ErrUnknownOutcome, rpctypes.ErrGRPCTimeout, "unknown_outcome"},
	{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader, "no_leader"},
	{replica.ErrNotLeader, rpctypes.ErrGRPCLeaderChanged, "leader_changed"},
	{replica.ErrHandOver, status.Error(codes.Unavailable, "etcdserver: request timed out, leader transfer took too long"), "hand_over"},
	{replica.ErrLeaseExpired, status.Error(codes.Unavailable, "etcdserver: the leader's lease has expired, try again"), "lease_expired"},
	{replica.ErrHeldOff, status.Error(codes.Unavailable, "etcdserver: "+replica.ErrHeldOff.Error()), "held_off"},
	{replica.ErrNoMember, rpctypes.ErrGRPCBadLeaderTransferee, "invalid"},
	{message.ErrMalformed, errInternal, reasonInternal}, // no client can cause it
	{replica.ErrFounding, errInternal, reasonInternal},  // etcd's API cannot order it
	{lifetime.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged, "leader_changed"},
	{replica.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests, admission.ReasonRequests},
	{node.ErrSnapshotUnderWay, status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+node.ErrSnapshotUnderWay.Error()), admission.ReasonRequests},
	{node.ErrExportsHalted, status.Error(codes.FailedPrecondition, "etcdserver: "+node.ErrExportsHalted.Error()), reasonInternal},
	{admission.ErrNoPlaces, statusNoPlaces, admission.ReasonPlaces},
	{admission.ErrShareTaken, statusShareTaken, admission.ReasonShare},
	{replica.ErrTooManyLeases, status.Error(codes.ResourceExhausted, "etcdserver: too many leases: end some, or allow more with --max-leases"), "too_many_leases"},
	{replica.ErrNoMemory, status.Error(codes.ResourceExhausted, "etcdserver: no memory left for more leases: end some, or allow more with --memory-limit"), admission.ReasonMemory},
	{replica.ErrAnswerDropped, status.Error(codes.ResourceExhausted, "etcdserver: "+replica.ErrAnswerDropped.Error()), admission.ReasonMemory},
	{keyspace.ErrNoRoom, status.Error(codes.ResourceExhausted, "etcdserver: "+admission.ErrNoAnswers.Error()), admission.ReasonMemory},
	{admission.ErrAnswersWait, status.Error(codes.ResourceExhausted, "etcdserver: "+admission.ErrAnswersWait.Error()), admission.ReasonMemory},
	{admission.ErrNoAnswers, status.Error(codes.ResourceExhausted, "etcdserver: "+admission.ErrNoAnswers.Error()), admission.ReasonMemory},
	{admission.ErrRequestsWait, status.Error(codes.ResourceExhausted, "etcdserver: "+admission.ErrRequestsWait.Error()), admission.ReasonMemory},
	{admission.ErrNoRequests, status.Error(codes.ResourceExhausted, "etcdserver: "+admission.ErrNoRequests.Error()), admission.ReasonMemory},
	{admission.ErrNoStreams, status.Error(codes.ResourceExhausted, "etcdserver: "+admission.ErrNoStreams.Error()), admission.ReasonMemory},
	{replica.ErrNoSpace, rpctypes.ErrGRPCNoSpace, "no_space"},
	{replica.ErrTooNew, status.Error(codes.FailedPrecondition, "etcdserver: "+replica.ErrTooNew.Error()), "too_new"},
	{replica.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge, "too_large"},
	{node.ErrStopped, rpctypes.ErrGRPCStopped, "stopped"},

	// etcd lets a second change wait until its time is over. The last voter is for etcd a case of too few members that
	// have started.
	{node.ErrNoPeerAddress, status.Error(codes.FailedPrecondition, "etcdserver: "+node.ErrNoPeerAddress.Error()), reasonMembers},
	{replica.ErrChanging, status.Error(codes.Unavailable, "etcdserver: "+replica.ErrChanging.Error()), "changing"},
	{roster.ErrNotFound, rpctypes.ErrGRPCMemberNotFound, reasonMembers},
	{roster.ErrRemoved, rpctypes.ErrGRPCMemberNotFound, reasonMembers},
	{roster.ErrIDExists, rpctypes.ErrGRPCMemberExist, reasonMembers},
	{roster.ErrInsecure, status.Error(codes.FailedPrecondition, "etcdserver: "+roster.ErrInsecure.Error()), reasonMembers}, // see translate
	{roster.ErrPeerURLExists, rpctypes.ErrGRPCPeerURLExist, reasonMembers},
	{roster.ErrNotLearner, rpctypes.ErrGRPCMemberNotLearner, reasonMembers},
	{roster.ErrLearnerNotInStep, rpctypes.ErrGRPCLearnerNotReady, reasonMembers},
	{roster.ErrTooManyLearners, rpctypes.ErrGRPCTooManyLearners, reasonMembers},
	{roster.ErrLastVoter, rpctypes.ErrGRPCMemberNotEnoughStarted, reasonMembers},
	{roster.ErrNotEnoughStarted, rpctypes.ErrGRPCMemberNotEnoughStarted, reasonMembers},
	{roster.ErrUnhealthy, rpctypes.ErrGRPCUnhealthy, reasonMembers},
	{roster.ErrInvalid, errInternal, reasonInternal}, // cluster.go raises what a client can cause
	{roster.ErrBound, errInternal, reasonInternal},   // only a leader binds members

	{access.ErrRootUserNotExist, rpctypes.ErrGRPCRootUserNotExist, reasonUsers},
	{access.ErrRootRoleNotExist, rpctypes.ErrGRPCRootRoleNotExist, reasonUsers},
	{access.ErrUserAlreadyExist, rpctypes.ErrGRPCUserAlreadyExist, reasonUsers},
	{access.ErrUserEmpty, rpctypes.ErrGRPCUserEmpty, reasonDenied},
	{access.ErrUserNotFound, rpctypes.ErrGRPCUserNotFound, reasonUsers},
	{access.ErrRoleAlreadyExist, rpctypes.ErrGRPCRoleAlreadyExist, reasonUsers},
	{access.ErrRoleNotFound, rpctypes.ErrGRPCRoleNotFound, reasonUsers},
	{access.ErrRoleEmpty, rpctypes.ErrGRPCRoleEmpty, reasonUsers},
	{access.ErrPermissionNotGiven, rpctypes.ErrGRPCPermissionNotGiven, reasonUsers},
	{access.ErrAuthFailed, rpctypes.ErrGRPCAuthFailed, reasonLogin},
	{access.ErrNoPasswordUser, status.Error(codes.Unknown, "auth: authentication failed, password was given for no password user"), reasonLogin},
	{access.ErrPermissionDenied, rpctypes.ErrGRPCPermissionDenied, reasonDenied},
	{access.ErrRoleNotGranted, rpctypes.ErrGRPCRoleNotGranted, reasonUsers},
	{access.ErrPermissionNotGranted, rpctypes.ErrGRPCPermissionNotGranted, reasonUsers},
	{access.ErrNotEnabled, rpctypes.ErrGRPCAuthNotEnabled, reasonUsers},
	{access.ErrOldRevision, rpctypes.ErrGRPCAuthOldRevision, reasonOld},
	{access.ErrInvalidManagement, rpctypes.ErrGRPCInvalidAuthMgmt, reasonUsers},
	{access.ErrRightNotGranted, status.Error(codes.FailedPrecondition, "etcdserver: "+access.ErrRightNotGranted.Error()), reasonUsers},
	{access.ErrTooLarge, status.Error(codes.ResourceExhausted, "etcdserver: "+access.ErrTooLarge.Error()), reasonUsers},
	{access.ErrInvalidQuota, status.Error(codes.InvalidArgument, "etcdserver: "+access.ErrInvalidQuota.Error()), reasonUsers},
	{access.ErrQuota, status.Error(codes.ResourceExhausted, "etcdserver: "+access.ErrQuota.Error()), reasonQuota}, // see translate
	{ErrUnsafePeers, status.Error(codes.FailedPrecondition, "etcdserver: "+ErrUnsafePeers.Error()), reasonUsers},
	// etcd has no code of its own for these two.
	{login.ErrLongPassword, status.Error(codes.Unknown, login.ErrLongPassword.Error()), reasonUsers},
	{login.ErrVerifyOnly, status.Error(codes.Unknown, login.ErrVerifyOnly.Error()), reasonLogin},
	{login.ErrInvalidToken, rpctypes.ErrGRPCInvalidAuthToken, reasonLogin},

	{lessor.ErrNotFound, rpctypes.ErrGRPCLeaseNotFound, "lease_not_found"},
	{lessor.ErrExists, rpctypes.ErrGRPCLeaseExist, "lease_exists"},
	{lessor.ErrInvalidTTL, errInternal, reasonInternal}, // lease.go raises it
	{lessor.ErrTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge, "ttl_too_large"},
	// These states last for moments: a lessor that is not primary, and a lease that is ending or being cleared. etcd
	// answers Unknown "not a primary lessor", after which no client tries again.
	{lessor.ErrNotPrimary, rpctypes.ErrGRPCNoLeader, "no_leader"},
	{lessor.ErrStopped, rpctypes.ErrGRPCStopped, "stopped"},
	{lessor.ErrEnding, status.Error(codes.Unavailable, "etcdserver: the lease is about to end, try again"), "lease_going"},
	{lessor.ErrClearing, status.Error(codes.Unavailable, "etcdserver: the renewal is being replicated, try again"), "lease_clearing"},

	{keyspace.ErrEmptyKey, rpctypes.ErrGRPCEmptyKey, "invalid"},
	{keyspace.ErrKeyNotFound, rpctypes.ErrGRPCKeyNotFound, "key_not_found"},
	{keyspace.ErrValueProvided, rpctypes.ErrGRPCValueProvided, "invalid"},
	{keyspace.ErrLeaseProvided, rpctypes.ErrGRPCLeaseProvided, "invalid"},
	{keyspace.ErrInvalidSort, rpctypes.ErrGRPCInvalidSortOption, "invalid"},
	{keyspace.ErrTooManyOps, rpctypes.ErrGRPCTooManyOps, "invalid"},
	{keyspace.ErrDuplicateKey, rpctypes.ErrGRPCDuplicateKey, "invalid"},
	{keyspace.ErrLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound, "lease_not_found"},
	{keyspace.ErrCompacted, rpctypes.ErrGRPCCompacted, "compacted"},
	{keyspace.ErrFutureRevision, rpctypes.ErrGRPCFutureRev, "future_revision"},
	{keyspace.ErrEmptyInterval, status.Error(codes.InvalidArgument, "etcdserver: mvcc: watcher range is empty"), "invalid"},
	{keyspace.ErrDuplicateWatch, status.Error(codes.InvalidArgument, "etcdserver: mvcc: duplicate watch ID provided on the WatchStream"), "invalid"},
	{keyspace.ErrReplaced, status.Error(codes.Unavailable, "etcdserver: the member is catching up, try again"), "catching_up"},
	{keyspace.ErrMisuse, errInternal, reasonInternal},
	{keyspace.ErrStreamClosed, rpctypes.ErrGRPCWatchCanceled, ""},

	{context.Canceled, rpctypes.ErrGRPCCanceled, ""},
	// This row is about the member's time limit. A client's own deadline is a matter of Answer.
	{context.DeadlineExceeded, rpctypes.ErrGRPCTimeout, "timeout"},
}

var (
	statusNoPlaces   = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+admission.ErrNoPlaces.Error())
	statusShareTaken = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+admission.ErrShareTaken.Error())
)

// errInternal hides the text of an error without a row, because it may contain file names or keys of other clients.
var errInternal = status.Error(codes.Internal, "etcdserver: internal error, see the server's log")

const (
	reasonCorrupt  = "corrupt"
	reasonInternal = "internal"
	reasonMembers  = "members" // a change of the members is not possible now, or never
	reasonUsers    = "users"   // a change of users or roles is not possible
	reasonDenied   = "denied"  // the user lacks a right, or is unknown
	reasonLogin    = "login"   // a password or a token is not valid
	reasonOld      = "old_revision"
	reasonQuota    = "quota" // the user has as much as its quota allows
)

// Answer turns an error into the status that a client receives. It counts each refusal, and logs unexpected errors. An
// error that is a status comes from this package and passes unchanged. ctx is the context that gRPC gave to the request:
// if it ends because of the client's own deadline, the client receives what its own library says then, whichever of
// the two notices the deadline first. That answer leaves the outcome open, as the member's own does.
func (s *API) Answer(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if due, ok := ctx.Deadline(); ok && !time.Now().Before(due) && // its timer may be late
		(errors.Is(err, context.DeadlineExceeded) || errors.Is(err, replica.ErrUnknownOutcome)) {
		return rpctypes.ErrGRPCDeadlineExceeded
	}
	reason, answer := translate(err)
	if reason == reasonInternal || reason == reasonCorrupt {
		tracing.Log(ctx, s.cfg.Log).Error("a request failed with an unexpected error: please report it", "error", err)
	}
	if reason != "" {
		s.cfg.Metrics.Refuse(reason)
	}
	return answer
}

// translate returns what Answer needs, without effects. The reason is "" if nothing was refused, or if the error is a
// status without a row.
func translate(err error) (reason string, answer error) {
	if exhausted := (*access.QuotaError)(nil); errors.As(err, &exhausted) {
		return reasonQuota, status.Error(codes.ResourceExhausted, "etcdserver: "+exhausted.Error())
	}
	if insecure := (*roster.InsecureError)(nil); errors.As(err, &insecure) {
		return reasonMembers, status.Error(codes.FailedPrecondition, "etcdserver: "+insecure.Error())
	}
	for i := range refusals {
		if errors.Is(err, refusals[i].err) {
			return refusals[i].reason, refusals[i].status
		}
	}
	if corrupt := (*keyspace.CorruptError)(nil); errors.As(err, &corrupt) {
		return reasonCorrupt, rpctypes.ErrGRPCCorrupt
	}
	if _, ok := status.FromError(err); ok {
		for i := range refusals {
			if refusals[i].status == err {
				return refusals[i].reason, err
			}
		}
		return "", err
	}
	return reasonInternal, errInternal
}

// Reasons returns the reasons under which this package counts what it refuses.
func Reasons() []string {
	reasons := []string{reasonCorrupt, reasonInternal, admission.ReasonWatchers}
	for _, r := range refusals {
		if r.reason != "" {
			reasons = append(reasons, r.reason)
		}
	}
	return reasons
}
