package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// An Event is something that has happened. Events about a lease that has ended, or that come when nothing
// waits for them any more, have no effect, so answers may be late, repeated and out of order.
type Event interface{ event() }

// Wake lets time be looked at. The driver sends one at every [WakeAt] and when a check of its own has found
// a lease past its deadline. Every other event does the same besides.
type Wake struct{}

// Queued is the answer to a claim: it stands in line for the name, and is renewed from now on.
type Queued struct {
	Lease Lease
	TTL   time.Duration // as granted; may differ from the one asked
	Until clock.Instant // if not zero: the end on this process's clocks, instead of TTL
}

// Granted is the answer to a claim, or for a claim that stood in line the news that it is its turn: the name
// is its own. The news moves no deadline, so its TTL is not looked at; its Until is believed if it is later.
type Granted struct {
	Lease Lease
	TTL   time.Duration
	Until clock.Instant
}

// Refused is the answer to a claim that has left nothing in the store.
type Refused struct{ Lease Lease }

// Unknown says that a claim may or may not have taken effect, now or later. It is answered by a [Resolve].
type Unknown struct{ Lease Lease }

// Renewed brings answers to the renewal message with this number, all or some, in any order.
type Renewed struct {
	Number  uint64
	Answers []Answer
}

// Answer is what the store said about one lease of a message.
type Answer struct {
	Lease   Lease
	Outcome Outcome
	TTL     time.Duration // if [Acknowledged]: as granted
	Until   clock.Instant // if [Acknowledged] and not zero: the end on this process's clocks, instead of TTL
}

// Outcome is what became of the renewal of one lease.
type Outcome uint8

// What can become of a renewal.
const (
	// Acknowledged: the store has renewed it.
	Acknowledged Outcome = iota
	// Gone: the store has said with authority that the lease has ended.
	Gone
	// Failed: anything else. It may have been renewed or not, so the old deadline stands.
	Failed
)

// Returned says that the message with this number will get no more answers: what was not answered failed.
type Returned struct{ Number uint64 }

// Ended says that the lease has ended, as somebody other than an answer to a renewal has told: a watch that
// saw the name deleted, an operator's revoke, a wait in line that was broken off.
type Ended struct{ Lease Lease }

// Releasing is sent just before the first attempt to give a lease back, to leave the line, or to take back a
// claim that was not answered yet. The right to act ends with it.
type Releasing struct{ Lease Lease }

// Released says that the store has confirmed it. The lease is forgotten.
type Released struct{ Lease Lease }

// ReleaseFailed says that an attempt to release failed or is of unknown outcome. It is answered by a
// [Resolve] or a [GaveUp].
type ReleaseFailed struct{ Lease Lease }

func (Wake) event()          {}
func (Queued) event()        {}
func (Granted) event()       {}
func (Refused) event()       {}
func (Unknown) event()       {}
func (Renewed) event()       {}
func (Returned) event()      {}
func (Ended) event()         {}
func (Releasing) event()     {}
func (Released) event()      {}
func (ReleaseFailed) event() {}
