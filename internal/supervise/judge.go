package supervise

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// reason is why everything is being ended.
type reason string

const (
	running   reason = ""          // it is not
	lost      reason = "lost"      // the lease is lost, or about to be
	orphaned  reason = "orphaned"  // the wrapper is gone
	leftovers reason = "leftovers" // the command has ended by itself, and left something running
)

// act is what is to be done now, to all that runs.
type act uint8

const (
	nothing   act = iota
	terminate     // SIGTERM
	kill          // SIGKILL, again and again: who is just being forked may have missed the last one
)

// killAgain is how long after SIGKILL the next one is sent if something still runs.
const killAgain = 20 * time.Millisecond

// judge decides when what runs is to be ended. Time comes in as an argument. Whatever happened is told by
// the methods that return nothing; decide then says what follows from it.
//
// Invariants: SIGKILL is due no later than terms.Lead() before the deadline; why changes once at most.
type judge struct {
	terms    Terms
	deadline clock.Instant

	leaseEnded   bool // the lease was lost before its deadline
	wrapperEnded bool
	headEnded    bool // the command's first process

	why     reason
	since   clock.Instant // if why is set: from when
	sentAny bool          // if why is set: whether SIGTERM was sent
	killing bool
}

func newJudge(terms Terms, deadline clock.Instant) *judge {
	return &judge{terms: terms, deadline: deadline}
}

// extend notes that the lease can be relied on until another deadline.
func (j *judge) extend(deadline clock.Instant) { j.deadline = deadline }

// decide says what is to be done now, and after how long to ask again if nothing happens until then.
func (j *judge) decide(now clock.Instant) (act, time.Duration) {
	if j.why == running {
		j.why, j.since = j.reason(now), now
	}
	switch {
	case j.why == running:
		return nothing, j.untilEnding(now)
	case j.killing || j.mustKill(now):
		j.killing = true
		return kill, killAgain
	case !j.sentAny:
		j.sentAny = true
		return terminate, j.untilKill(now)
	}
	return nothing, j.untilKill(now)
}

// relies says whether the command may run only while the lease lasts.
func (j *judge) relies() bool { return j.terms.OnLost != Warn }

func (j *judge) reason(now clock.Instant) reason {
	switch {
	case j.wrapperEnded:
		return orphaned
	case j.relies() && (j.leaseEnded || !now.Before(j.endAt())):
		return lost
	case j.headEnded && !j.terms.Wait:
		return leftovers
	}
	return running
}

// endAt is when the command must begin to end.
func (j *judge) endAt() clock.Instant {
	if j.terms.OnLost == Kill {
		return j.killAt()
	}
	return j.deadline.Add(-j.terms.KillAfter)
}

// killAt is when nothing may run any more.
func (j *judge) killAt() clock.Instant { return j.deadline.Add(-j.terms.Lead()) }

// graceEnd is when the time is over that the command has after SIGTERM.
func (j *judge) graceEnd() clock.Instant { return j.since.Add(j.terms.KillAfter) }

func (j *judge) mustKill(now clock.Instant) bool {
	return j.why == lost && j.terms.OnLost == Kill ||
		!now.Before(j.graceEnd()) ||
		j.relies() && !now.Before(j.killAt())
}

// forever is how long nothing will have to be done without an event.
const forever = time.Hour

func (j *judge) untilEnding(now clock.Instant) time.Duration {
	if !j.relies() {
		return forever
	}
	return min(now.Remaining(j.endAt()), forever)
}

func (j *judge) untilKill(now clock.Instant) time.Duration {
	left := now.Remaining(j.graceEnd())
	if j.relies() {
		left = min(left, now.Remaining(j.killAt()))
	}
	return left
}
