package demo

import (
	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
)

// The kinds of reports.
const (
	reportWaits    = "waits"    // the worker waits for the name
	reportHolds    = "holds"    // the worker has acquired the name
	reportChecked  = "checked"  // the worker has checked its lease, and waits for orderWrite before it writes
	reportWrote    = "wrote"    // the resource accepted a write
	reportRefused  = "refused"  // the resource refused a write, because it knows a newer token
	reportReleased = "released" // the worker has stopped writing and releases the name
	reportEnded    = "ended"    // the worker has found that its lease has ended
	reportFailed   = "failed"   // a request to the store or a write failed otherwise
)

// The orders that the scenario writes to a worker's standard input, one a line.
const (
	orderSlow    = "slow"    // after your next check, report it and wait for orderWrite
	orderWrite   = "write"   // write now, without another check
	orderRelease = "release" // release the name
)

// report is one line of JSON that a worker prints for the scenario.
type report struct {
	Kind    string
	At      clock.Instant     // when it happened
	Token   leasekeeper.Token // of the tenure; 0 outside a tenure
	Until   clock.Instant     // the deadline of the lease, not before the time of the report; zero if the worker holds no lease
	Checked clock.Instant     // for a write: when the worker checked its lease before it
	Write   int               // the number of a write by this process
	Highest leasekeeper.Token // the token because of which the resource refused the write
	Why     string            // why a request failed
}
