package event

import (
	"fmt"
	"math"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
)

// Forever is the end of an authority that needs no promise: that of a cluster's only voter, and of answers that rest
// on the log.
var Forever = clock.Instant{Raw: math.MaxInt64, Boot: math.MaxInt64}

// Resting returns the answer with the end of the authority on which it rests.
func Resting(effect Effect, authority clock.Instant) Effect {
	switch e := effect.(type) {
	case ReadAt:
		e.Authority = authority
		return e
	case Reply:
		e.Authority = authority
		return e
	case Renewed:
		e.Authority = authority
		return e
	}
	panic(fmt.Sprintf("event: %T is no answer", effect))
}

// Holds reports whether the authority of an effect still holds. The driver calls it just before the effect leaves
// (rule T3 of docs/design/time-and-identity.md). Replies to commands rest on no authority, because the log holds
// their changes. A [Send] that does not hold is dropped.
func Holds(effect Effect, now func() clock.Instant) bool {
	authority := Forever
	switch e := effect.(type) {
	case Reply:
		authority = e.Authority
	case ReadAt:
		authority = e.Authority
	case Renewed:
		authority = e.Authority
	case Send:
		authority = e.Authority
	}
	return authority == Forever || now().Before(authority)
}

// Authorized returns the answer if its authority holds. Otherwise it returns the answer [message.ErrNoLeader].
func Authorized(answer Effect, now func() clock.Instant) Effect {
	if Holds(answer, now) {
		return answer
	}
	return Refusal(answer, message.ErrNoLeader)
}

// Refusal returns the answer with an error in place of its content.
func Refusal(effect Effect, reason error) Effect {
	switch e := effect.(type) {
	case ReadAt:
		return Reply{ID: e.ID, Err: reason, Authority: Forever}
	case Reply:
		return Reply{ID: e.ID, Err: reason, Authority: Forever}
	case Renewed:
		leases := make([]RenewedLease, len(e.Leases))
		for i, lease := range e.Leases {
			leases[i] = RenewedLease{ID: lease.ID, Err: reason}
		}
		return Renewed{ID: e.ID, Header: e.Header, Leases: leases, Authority: Forever}
	}
	panic(fmt.Sprintf("event: %T is no answer", effect))
}
