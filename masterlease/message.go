package masterlease

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A Request asks the receiver not to help elect another leader for a while. A leader that wants a lease sends
// it with every heartbeat and snapshot, and with appends unless it is [Holder.Comfortable].
type Request struct {
	Term  uint64
	Epoch uint64
	// Stamp is when the leader gave the message to the transport, on its own clocks. Other members can only
	// echo it, and compare it with other stamps of the same leader and epoch.
	Stamp clock.Instant
	// Duration is the requested length of the promise, in real time.
	Duration time.Duration
	// Drift is the drift bound of the leader's configuration.
	Drift clock.Drift
}

// A Grant travels with the answer to such a message. It is one member's share of the master lease.
type Grant struct {
	Term  uint64
	Epoch uint64
	// Echo is the newest stamp that the member has processed.
	Echo clock.Instant
	// Duration is the promised length: the shorter one of both sides. Drift is the bound by which the grantor
	// lengthened it: the larger one of both sides.
	Duration time.Duration
	Drift    clock.Drift
	// Remaining is how long the promise still lasts on the grantor's clocks. The leader uses it only to
	// notice a clock outside its bound.
	Remaining time.Duration
	// Reading is what the grantor's clocks showed when it processed the echoed stamp. Domain identifies those
	// clocks. Only differences between readings of one domain have a meaning.
	Reading clock.Instant
	Domain  uint64
}

// A Release states that a leader has withdrawn its authority of this epoch and all earlier ones. So no member
// need wait for promises of those epochs. It travels with the message that tells a member to campaign at
// once, and with the requests for votes that follow. It travels alone when a leader steps down or stops.
type Release struct {
	Leader uint64
	Term   uint64
	Epoch  uint64
}

// Header travels alongside a message between members. Each part may be nil.
type Header struct {
	Request *Request
	Grant   *Grant
	Release *Release
}

// Role is the role of a member in raft. A learner is a Follower here.
type Role uint8

// The roles of raft.
const (
	Follower Role = iota
	PreCandidate
	Candidate
	Leader
)

// State is the state of this member in raft. Sample it after every call of raft that can change it.
type State struct {
	Term   uint64
	Leader uint64 // 0 if not known
	Role   Role
	// Transferee is the member to which a leader hands over; 0 without a handover.
	Transferee uint64
}

// Configuration is one applied configuration of the cluster. Outgoing is not empty in joint consensus.
type Configuration struct {
	Voters   []uint64
	Outgoing []uint64
	Learners []uint64
}

var (
	// ErrPromised: this member must not campaign now. It has promised that to a leader, or started so
	// recently that an earlier promise may bind it. The error is always a [*PromisedError].
	ErrPromised = errors.New("promise outstanding")
	// ErrMalformed: the bytes are not a header. Treat the message like one without a header.
	ErrMalformed = errors.New("malformed header")
)

// PromisedError reports how long a member must wait before it may campaign. It is [ErrPromised] for
// errors.Is.
type PromisedError struct {
	Leader uint64        // the leader that has the promise; 0 if only the hold-off after the start binds the member
	Wait   time.Duration // the shortest time to wait
}

func (e *PromisedError) Error() string {
	if e.Leader == 0 {
		return fmt.Sprintf("masterlease: this member has just started and may have promised not to vote: wait %v", e.Wait)
	}
	return fmt.Sprintf("masterlease: this member has promised leader %d not to elect another: wait %v, or hand over from that leader", e.Leader, e.Wait)
}

// Is reports whether target is ErrPromised.
func (e *PromisedError) Is(target error) bool { return target == ErrPromised }
