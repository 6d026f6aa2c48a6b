package replica

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Answer does for one [Renewal], [Read] or [Inspection] what Step would, as far as memory is enough for it. It
// proposes nothing and writes nothing, so its caller never waits for the disk. What has to happen
// before some of the ids of a renewal can be answered is left to the next Step; if that is to come sooner than
// the last [WakeAt] said, there is another one. now is read after the event has come, as for Step.
//
// It returns false, and has done nothing, if only Step can deal with the event. The effects are valid until
// the next call of Answer or Step.
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

// untilDue returns how long it takes until the lessor has something to decide.
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
	r.emit(WakeAt{wait})
}
