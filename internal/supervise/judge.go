package supervise

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// reason is why the command is being ended.
type reason string

const (
	running   reason = ""          // the command is not being ended
	lost      reason = "lost"      // the lease is lost, or about to be
	orphaned  reason = "orphaned"  // the wrapper has ended
	leftovers reason = "leftovers" // the command ended by itself and left processes running
)

// action is what to do now to all processes of the command.
type action uint8

const (
	actNothing   action = iota
	actTerminate        // SIGTERM
	actKill             // SIGKILL, repeatedly: a process that was just being forked may have missed the last one
)

// killAgain is the time between two SIGKILLs, if a process still runs.
const killAgain = 20 * time.Millisecond

// judge decides when to end the processes of a command. The caller passes the time, records events by extend and by the
// fields leaseEnded, wrapperEnded and headEnded, and then calls decide.
//
// Invariants: SIGKILL is due no later than terms.Lead() before the deadline; why changes at most once.
type judge struct {
	terms    Terms
	deadline clock.Instant

	leaseEnded   bool // the lease was lost before its deadline
	wrapperEnded bool
	headEnded    bool // the command's first process has ended

	why     reason
	since   clock.Instant // if why is set: when it was set
	sentAny bool          // if why is set: SIGTERM was sent
	killing bool          // SIGKILL was sent
}

func newJudge(terms Terms, deadline clock.Instant) *judge {
	return &judge{terms: terms, deadline: deadline}
}

// extend records a new deadline.
func (j *judge) extend(deadline clock.Instant) { j.deadline = deadline }

// decide returns what to do now, and after how long to call it again if nothing happens before.
func (j *judge) decide(now clock.Instant) (action, time.Duration) {
	if j.why == running {
		j.why, j.since = j.reason(now), now
	}
	switch {
	case j.why == running:
		return actNothing, j.untilEnding(now)
	case j.killing || j.mustKill(now):
		j.killing = true
		return actKill, killAgain
	case !j.sentAny:
		j.sentAny = true
		return actTerminate, j.untilKill(now)
	}
	return actNothing, j.untilKill(now)
}

// needsLease reports whether the command may run only while the lease lasts.
func (j *judge) needsLease() bool { return j.terms.OnLost != Warn }

// reason returns why the command must end now, or running.
func (j *judge) reason(now clock.Instant) reason {
	switch {
	case j.wrapperEnded:
		return orphaned
	case j.needsLease() && (j.leaseEnded || !now.Before(j.endAt())):
		return lost
	case j.headEnded && !j.terms.Wait:
		return leftovers
	}
	return running
}

// endAt returns when to begin ending the command.
func (j *judge) endAt() clock.Instant {
	if j.terms.OnLost == Kill {
		return j.killAt()
	}
	return j.deadline.Add(-j.terms.KillAfter)
}

// killAt returns when SIGKILL is due, whatever the command's grace.
func (j *judge) killAt() clock.Instant { return j.deadline.Add(-j.terms.Lead()) }

// graceEnd returns when the command's time after SIGTERM is over.
func (j *judge) graceEnd() clock.Instant { return j.since.Add(j.terms.KillAfter) }

// mustKill reports whether SIGKILL is due, given that the command is being ended.
func (j *judge) mustKill(now clock.Instant) bool {
	return j.why == lost && j.terms.OnLost == Kill ||
		!now.Before(j.graceEnd()) ||
		j.needsLease() && !now.Before(j.killAt())
}

// forever is a wait that only an event ends.
const forever = time.Hour

// untilEnding returns for how long the command may go on if nothing happens.
func (j *judge) untilEnding(now clock.Instant) time.Duration {
	if !j.needsLease() {
		return forever
	}
	return min(now.Remaining(j.endAt()), forever)
}

// untilKill returns how long until SIGKILL is due.
func (j *judge) untilKill(now clock.Instant) time.Duration {
	left := now.Remaining(j.graceEnd())
	if j.needsLease() {
		left = min(left, now.Remaining(j.killAt()))
	}
	return left
}
