package masterlease

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A Request travels beside every heartbeat and snapshot that a leader sends while it wants a lease, and beside appends
// as long as it is not [Holder.Comfortable]. It asks the receiver not to help elect another leader for a while.
type Request struct {
	Term  uint64
	Epoch uint64
	// Stamp is when the leader handed the message over for sending, on its own clocks. To everybody else it
	// is a token that can only be echoed, and compared with others of the same leader in the same epoch.
	Stamp clock.Instant
	// Duration is how long the promise shall last in real time.
	Duration time.Duration
	// Drift is the bound that the leader has been configured with.
	Drift clock.Drift
}

// A Grant travels beside the answers to those messages. It is one member's share of the master lease.
type Grant struct {
	Term  uint64
	Epoch uint64
	// Echo is the newest stamp that was processed.
	Echo clock.Instant
	// Duration is what was promised, and Drift the bound it was inflated with: the more careful of the two
	// sides'.
	Duration time.Duration
	Drift    clock.Drift
	// Remaining is how long the promise still lasts on the grantor's clocks. It only serves to notice a
	// broken clock.
	Remaining time.Duration
	// Reading is what the grantor's clocks showed when it processed the echoed stamp, and Domain names those
	// clocks. Only differences between readings of one domain mean anything.
	Reading clock.Instant
	Domain  uint64
}

// A Release says that a leader has withdrawn its authority, so nobody need wait for what was promised to it up
// to that epoch. It travels beside the message that tells a member to campaign at once, beside the requests for
// votes that follow from it, or alone when a leader steps down or stops.
type Release struct {
	Leader uint64
	Term   uint64
	Epoch  uint64
}

// Header is what travels beside a message between members. Each part is optional.
type Header struct {
	Request *Request
	Grant   *Grant
	Release *Release
}

// Role is what raft says a member is. A learner is a Follower here.
type Role uint8

// The roles of raft.
const (
	Follower Role = iota
	PreCandidate
	Candidate
	Leader
)

// State is what raft says of this member: sample it after every call of raft that can change it.
type State struct {
	Term   uint64
	Leader uint64 // 0: not known
	Role   Role
	// Transferee is whom a leader is handing over to; 0: nobody.
	Transferee uint64
}

// Configuration is one applied configuration of the group. Outgoing is not empty in joint consensus.
type Configuration struct {
	Voters   []uint64
	Outgoing []uint64
	Learners []uint64
}

var (
	// ErrPromised says that this member must not campaign now, because it has promised a leader not to, or
	// because it has started a short while ago and may have promised something before. It is always a
	// [*PromisedError].
	ErrPromised = errors.New("promise outstanding")
	// ErrMalformed says that bytes are not a header. The message beside them is as good as one without.
	ErrMalformed = errors.New("malformed header")
)

// PromisedError says for how long a member has to wait. It is [ErrPromised] for errors.Is.
type PromisedError struct {
	Leader uint64        // to whom; 0 if it is only that the member has started a short while ago
	Wait   time.Duration // at the least
}

func (e *PromisedError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("masterlease: this member has just started and may have promised its vote: wait %v", e.Wait)
	}
	return fmt.Sprintf("masterlease: this member has promised leader %d not to elect another: wait %v or let it release", e.Leader, e.Wait)
}

// Is reports whether target is ErrPromised.
func (e *PromisedError) Is(target error) bool { return target == ErrPromised }
