package replica

import (
	"errors"

	"github.com/leasekeeper/leasekeeper/internal/replica/message"
)

// Errors about the member rather than the state. Packages lessor, keyspace and ownership own the errors of commands.
var (
	// ErrNoLeader is [message.ErrNoLeader].
	ErrNoLeader = message.ErrNoLeader
	// ErrNotLeader is [message.ErrNotLeader].
	ErrNotLeader = message.ErrNotLeader
	// ErrLeaseExpired says that this leader's master lease has expired, and that no majority has confirmed its
	// leadership in time. The member cannot answer about the state; try again.
	ErrLeaseExpired = errors.New("the leader's lease has expired and no majority confirms it: try again in a moment")
	// ErrTooManyRequests is [message.ErrTooManyRequests].
	ErrTooManyRequests = message.ErrTooManyRequests
	// ErrNoSpace says that the disk, or the quota, has no space for more data. Nothing was changed.
	ErrNoSpace = errors.New("no space left for more data: delete and compact, or give the data directory more space")
	// ErrTooManyLeases says that there are as many leases as the configuration allows. Nothing was changed.
	ErrTooManyLeases = errors.New("too many leases: end some, or allow more with --max-leases")
	// ErrNoMemory says that the process has no memory left for more leases, or keys attached to them. Nothing was changed.
	ErrNoMemory = errors.New("no memory left for more leases: end some, or allow more with --memory-limit")
	// ErrHeldOff says that the data was restored a short while ago, and that holders of before may still act. Nothing
	// was changed.
	ErrHeldOff = errors.New("after a restore no name is granted, and no lease ends, until all earlier holders have certainly stopped: try again later")
	// ErrAnswerDropped says that a request was carried out, but its answer does not fit into the memory for answers.
	ErrAnswerDropped = errors.New("the request was carried out, but its answer is too large to be given: read in a request of its own, less at a time")
	// ErrTooNew says that a member of the cluster may be of a version that does not know the request. Nothing was changed.
	ErrTooNew = errors.New("not all members of the cluster are known to understand this request: upgrade and start all of them, then try again")
	// ErrTooLarge says that a request does not fit into one log entry.
	ErrTooLarge = errors.New("request is too large")
	// ErrUnknownOutcome says that the request was proposed and its outcome is not known: it may yet take effect. Read
	// back before trying again.
	ErrUnknownOutcome = errors.New("outcome unknown: the request may or may not take effect; read back before trying again")
)

// NotLeaderError is [message.NotLeaderError].
type NotLeaderError = message.NotLeaderError

// notLeader returns why this member refuses what only a leader does.
func (r *Replica) notLeader() error {
	if r.leader == 0 || r.leading {
		return ErrNoLeader
	}
	return &NotLeaderError{Leader: r.leader}
}
