package keepalive

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/clock"
)

// An Effect is something that the driver must do or should know, in the order in which [Renewer.Step]
// returned it.
type Effect interface{ effect() }

// Renew asks to send one message that renews these leases, now: their new deadlines are counted from the
// instant of the Step that returned it. Each lease is answered by a [Renewed], the rest by a [Returned]. A
// message that could not be sent at once is better given up with Returned than sent later. The slice is
// read by both sides for as long as they like, and changed by neither.
type Renew struct {
	Number uint64 // from 1, never used twice
	Leases []Lease
	// Hedge says that an earlier message about each of these leases is overdue and still under way: this one is
	// to take another endpoint, or another connection.
	Hedge bool
}

// Abandon asks to give up on the message with this number: its leases have ended, or no answer to it can matter,
// or it is a hedge that is overdue itself. Answers that come nevertheless are welcome. It needs no Returned.
type Abandon struct{ Number uint64 }

// Held says that the lease holds its name: the right to act begins. Later deadlines are asked for with
// [Renewer.Deadline].
type Held struct {
	Lease    Lease
	Deadline clock.Instant
}

// Doubt says that a lease which holds its name has not been acknowledged for half of its length. It is a
// report: the right to act stands until the deadline.
type Doubt struct{ Lease Lease }

// Assured says that a lease that was in [Doubt] was acknowledged again.
type Assured struct{ Lease Lease }

// Lost says that the lease is over and will not come back: the right to act has ended, if it had begun, or
// the place in line or the claim is void. It comes at most once, and the handle is of no use afterwards.
type Lost struct {
	Lease Lease
	Cause Cause
}

// Resolve asks to settle an unknown outcome. If Release is set, release again; else repeat the claim with
// the same id, which is answered like the claim. A driver that does not want the claim any more sends
// [Releasing] instead.
type Resolve struct {
	Lease   Lease
	Release bool
}

// GaveUp says that a release was tried in vain until, as far as is known, the lease has run out. Nobody has
// confirmed it. The handle is of no use afterwards.
type GaveUp struct{ Lease Lease }

// WakeAt asks for one [Wake] as soon as either clock has reached the instant. It replaces the one before. Once
// that Wake was sent nothing is waited for until the next WakeAt.
type WakeAt struct{ At clock.Instant }

func (Renew) effect()   {}
func (Abandon) effect() {}
func (Held) effect()    {}
func (Doubt) effect()   {}
func (Assured) effect() {}
func (Lost) effect()    {}
func (Resolve) effect() {}
func (GaveUp) effect()  {}
func (WakeAt) effect()  {}

// Cause is why a lease was lost.
type Cause uint8

// Why a lease can be lost.
const (
	_        Cause = iota
	Deadline       // no renewal was acknowledged in time
	Void           // the claim was not answered in time: what it could be granted is over
	Vanished       // the store said in answer to a renewal that it is gone
	Told           // [Ended] said so
)

func (c Cause) String() string {
	switch c {
	case Deadline:
		return "no renewal was acknowledged before the deadline"
	case Void:
		return "its claim was not answered in time"
	case Vanished:
		return "the store says that it is gone"
	case Told:
		return "it was ended by somebody"
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}
