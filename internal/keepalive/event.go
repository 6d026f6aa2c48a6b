package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// An Event is something that happened. An event about a lease that has ended has no effect, nor has an answer that is no
// longer expected. So answers may come late, twice and out of order.
type Event interface{ event() }

// Wake has the Renewer compare its deadlines with the time, as every other event does too. The driver sends one at every
// [WakeAt], and when its own check has found a lease past its deadline.
type Wake struct{}

// Queued is the answer to a claim that waits in the queue of its name. The Renewer renews it from now on.
type Queued struct {
	Lease Lease
	TTL   time.Duration // granted by the store; may differ from the claimed TTL
	Until clock.Instant // if not zero: the end on this process's clocks, used instead of TTL
}

// Granted is the answer to a claim that holds its name, or the news that a queued claim now holds it. That news does not
// extend the lease: the Renewer ignores its TTL, and uses its Until only if that is later than the deadline.
type Granted struct {
	Lease Lease
	TTL   time.Duration
	Until clock.Instant
}

// Refused is the answer to a claim that changed nothing in the store.
type Refused struct{ Lease Lease }

// Unknown reports that a claim may have taken effect, or may take effect later. A [Resolve] follows in time.
type Unknown struct{ Lease Lease }

// Renewed has some or all answers to the renewal message with this number, in any order.
type Renewed struct {
	Number  uint64
	Answers []Answer
}

// Answer is the store's answer about one lease of a message.
type Answer struct {
	Lease   Lease
	Outcome Outcome
	TTL     time.Duration // if [Acknowledged]: granted by the store
	Until   clock.Instant // if [Acknowledged] and not zero: the end on this process's clocks, used instead of TTL
}

// Outcome is the outcome of the renewal of one lease.
type Outcome uint8

// The outcomes of a renewal.
const (
	// Acknowledged means that the store renewed the lease.
	Acknowledged Outcome = iota
	// Gone means that the store has decided that the lease has ended.
	Gone
	// Failed means anything else. The store may or may not have renewed the lease, so the old deadline stays.
	Failed
)

// Returned reports that the message with this number gets no more answers: for all other leases in it the attempt failed.
type Returned struct{ Number uint64 }

// Ended reports that the lease has ended, and that the driver knows it from something other than an answer to a renewal:
// a watch that saw the name deleted, an operator's revoke, or a wait in the queue that the store broke off.
type Ended struct{ Lease Lease }

// Retire ends the renewals of a held lease. The caller may act under it until its deadline, which only an answer to a
// renewal under way still moves. It is then lost, unless the driver releases it before.
type Retire struct{ Lease Lease }

// Releasing reports that the driver is about to send the first attempt to release a lease, to leave the queue, or to
// withdraw a claim that was not answered yet. The right to act ends with it.
type Releasing struct{ Lease Lease }

// Released reports that the store confirmed the release. The Renewer forgets the lease.
type Released struct{ Lease Lease }

// ReleaseFailed reports that an attempt to release failed or has an unknown outcome. A [Resolve] or a [GaveUp] follows
// in time.
type ReleaseFailed struct{ Lease Lease }

func (Wake) event()          {}
func (Queued) event()        {}
func (Granted) event()       {}
func (Refused) event()       {}
func (Unknown) event()       {}
func (Renewed) event()       {}
func (Returned) event()      {}
func (Ended) event()         {}
func (Retire) event()        {}
func (Releasing) event()     {}
func (Released) event()      {}
func (ReleaseFailed) event() {}
