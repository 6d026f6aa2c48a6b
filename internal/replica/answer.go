package replica

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Answer does for one [Renewal], [Read] or [Inspection] what Step would do, as far as memory is enough. It proposes
// and writes nothing, so its caller never waits for the disk. Ids of a renewal that need a decision first wait for
// the next Step. If that Step must come sooner than the last [WakeAt] said, the effects contain another one. now is
// read after the event came, as for Step.
//
// It returns false, and has changed nothing, if only Step can process the event. The effects are valid until the next
// call of Answer or Step.
func (r *Replica) Answer(now clock.Instant, event Event) (effects []Effect, ok bool) {
	if _, behind := r.behind(); behind || !r.Serving() || !r.holder.Valid(now) {
		return nil, false
	}
	switch event.(type) {
	case Renewal, Read, Inspection:
	default:
		return nil, false
	}
	r.effects = r.answers[:0]
	r.noticePause(now)
	r.now = now
	r.serve(event)
	if wait, ok := r.untilDue(); ok && wait < r.now.Until(r.wake) {
		r.wakeIn(wait)
	}
	r.answers = r.effects
	return r.effects, true
}

// untilDue returns how long it takes until the lessor has something to decide. ok is false if it has nothing.
func (r *Replica) untilDue() (time.Duration, bool) {
	if !r.serving || !r.intake.HasRoomForExpiries(r.now) {
		return 0, false
	}
	due, ok := r.lessor.NextDue(r.now)
	// An end has come only strictly after its deadline.
	return max(due, r.intake.ExpiryDelay(r.now), r.now.Until(r.holdUntil)) + 1, ok
}

func (r *Replica) wakeIn(wait time.Duration) {
	r.wake = r.now.Add(wait)
	r.emit(WakeAt{Wait: wait})
}
