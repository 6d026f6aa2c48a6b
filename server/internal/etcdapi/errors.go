package etcdapi

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/node"
	"github.com/leasekeeper/leasekeeper/internal/replica"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
	"github.com/leasekeeper/leasekeeper/server/internal/lifetime"
)

// refusal is one row of the table: what the member said, what the client is told, and under which reason
// it is counted.
type refusal struct {
	err    error
	status error
	reason string // a label of a metric, never anything a client chose; "" if it was the client who left
}

// refusals is the only place where errors of the member become errors of etcd. The first row that matches
// counts, so an unknown outcome comes before the context error that it may wrap: it must never read as a
// failure of the command.
var refusals = []refusal{
	{replica.ErrUnknownOutcome, rpctypes.ErrGRPCTimeout, "unknown_outcome"},
	{replica.ErrNoLeader, rpctypes.ErrGRPCNoLeader, "no_leader"},
	{replica.ErrNotLeader, rpctypes.ErrGRPCLeaderChanged, "leader_changed"},
	{replica.ErrHandOver, status.Error(codes.Unavailable, "etcdserver: request timed out, leader transfer took too long"), "hand_over"},
	{replica.ErrLeaseExpired, status.Error(codes.Unavailable, "etcdserver: the leader's lease has expired, try again"), "lease_expired"},
	{replica.ErrNoMember, rpctypes.ErrGRPCBadLeaderTransferee, "invalid"},
	{message.ErrMalformed, errInternal, reasonInternal}, // no client sees it
	{replica.ErrFounding, errInternal, reasonInternal},  // etcd's clients order nothing of the kind
	{lifetime.ErrLeaderChanged, rpctypes.ErrGRPCLeaderChanged, "leader_changed"},
	{replica.ErrTooManyRequests, rpctypes.ErrGRPCRequestTooManyRequests, admission.ReasonRequests},
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
	{replica.ErrTooLarge, rpctypes.ErrGRPCRequestTooLarge, "too_large"},
	{node.ErrStopped, rpctypes.ErrGRPCStopped, "stopped"},

	{lessor.ErrNotFound, rpctypes.ErrGRPCLeaseNotFound, "lease_not_found"},
	{lessor.ErrExists, rpctypes.ErrGRPCLeaseExist, "lease_exists"},
	{lessor.ErrInvalidTTL, errInternal, reasonInternal}, // lease.go raises it
	{lessor.ErrTTLTooLarge, rpctypes.ErrGRPCLeaseTTLTooLarge, "ttl_too_large"},
	// A lessor that is not primary, or a lease that is just ending or being cleared, is a matter of
	// moments. etcd answers Unknown "not a primary lessor" here, on which no client tries again.
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
	// The client's own deadline it notices itself; what it is told is that the member took too long.
	{context.DeadlineExceeded, rpctypes.ErrGRPCTimeout, "timeout"},
}

var (
	statusNoPlaces   = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+admission.ErrNoPlaces.Error())
	statusShareTaken = status.Error(codes.ResourceExhausted, "etcdserver: too many requests: "+admission.ErrShareTaken.Error())
)

// errInternal is all that a client learns of an error that no row names: its text may speak of files or of
// other clients' keys.
var errInternal = status.Error(codes.Internal, "etcdserver: internal error, see the server's log")

const (
	reasonCorrupt  = "corrupt"
	reasonInternal = "internal"
)

// Answer turns an error into the status that a client receives, counts it, and logs it if it should not occur.
// Errors that are statuses already were made in this package and pass as they are.
func (s *API) Answer(err error) error {
	if err == nil {
		return nil
	}
	reason, answer := translate(err)
	if reason == reasonInternal || reason == reasonCorrupt {
		s.cfg.Log.Error("a request failed with an unexpected error: please report it", "error", err)
	}
	if reason != "" {
		s.cfg.Metrics.Refuse(reason)
	}
	return answer
}

// translate is Answer without its effects. The reason is empty if nothing was refused, or if the error is a status that
// no row has.
func translate(err error) (reason string, answer error) {
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
