package keepalive

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/clock"
)

// An Effect is an action for the driver, or a report to it. The driver handles effects in the order in which
// [Renewer.Step] returned them.
type Effect interface{ effect() }

// Renew asks the driver to send one message that renews these leases now: their new deadlines count from the instant of
// the Step that returned the effect. The driver reports the answers by [Renewed], and by [Returned] that no more will
// come. If it cannot send the message at once, it should report Returned instead of sending it later. Both the Renewer
// and the driver may keep the slice; neither may change it.
type Renew struct {
	Number uint64 // from 1; no two messages have the same
	Leases []Lease
	// Hedge is set if an earlier message about each of these leases is overdue and still under way. The driver then
	// sends this message to another endpoint, or over another connection.
	Hedge bool
}

// Abandon asks the driver to stop waiting for the message with this number: its leases have ended, no answer to it can
// change anything, or it is a hedge that is overdue. The driver need not report [Returned], and may still report answers
// that arrive.
type Abandon struct{ Number uint64 }

// Held reports that the lease holds its name: the right to act begins. [Renewer.Deadline] returns later deadlines.
type Held struct {
	Lease    Lease
	Deadline clock.Instant
}

// Doubt reports that no renewal of a held lease was acknowledged for half of its length. It changes nothing: the right
// to act lasts until the deadline.
type Doubt struct{ Lease Lease }

// Assured reports that a renewal was acknowledged for a lease that was in [Doubt].
type Assured struct{ Lease Lease }

// Lost reports that the lease has ended for good: the right to act, the place in the queue, or the claim. It comes at
// most once for each lease. Afterwards events about the handle have no effect.
type Lost struct {
	Lease Lease
	Cause Cause
}

// Resolve asks the driver to resolve an unknown outcome. If Release is set, the driver releases the lease again.
// Otherwise it repeats the claim with the same id and reports the answer as that of a claim. If it no longer wants the
// claim, it sends [Releasing] instead.
type Resolve struct {
	Lease   Lease
	Release bool
}

// GaveUp reports that the Renewer no longer retries a release, because the lease must have expired by now. No store has
// confirmed the release. Afterwards events about the handle have no effect.
type GaveUp struct{ Lease Lease }

// WakeAt asks the driver to send one [Wake] as soon as either clock has reached the instant. It replaces the previous
// WakeAt. After that Wake the driver waits for nothing until the next WakeAt.
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

// Cause is the reason why a lease was lost.
type Cause uint8

// The causes.
const (
	_           Cause = iota
	Deadline          // no renewal was acknowledged in time
	Void              // the claim was not answered in time: a grant would have expired already
	Vanished          // the store answered a renewal that the lease has ended
	EndReported       // the driver sent [Ended]
)

func (c Cause) String() string {
	switch c {
	case Deadline:
		return "no renewal was acknowledged before the deadline"
	case Void:
		return "its claim was not answered in time"
	case Vanished:
		return "the store says that it is gone"
	case EndReported:
		return "another process or an operator ended it"
	}
	return fmt.Sprintf("Cause(%d)", uint8(c))
}
