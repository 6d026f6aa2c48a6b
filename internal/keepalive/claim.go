package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// onClaimAnswer handles the answer to a claim, or the news that a queued claim was granted. The new state to is
// stateQueued or stateHeld.
func (h *Renewer) onClaimAnswer(now clock.Instant, l Lease, to state, ttl time.Duration, until clock.Instant) {
	s, late := h.find(l), Deadline
	switch {
	case s == nil:
		return
	case s.claims():
		late = Void
		h.setDeadline(now, s, s.instant, ttl, until)
	case s.state == stateQueued && to == stateHeld:
		if h.rules.expired(now, s.instant) {
			break // lost below: its place in the queue has expired, so the grant comes too late
		}
		s.instant = h.rules.fromQueue(s.instant, now, s.length)
		if s.instant.Before(until) {
			s.instant = until
			s.length = now.Remaining(until)
		}
	default:
		return // a repeated answer, or one for a lease that is being released
	}
	if h.rules.expired(now, s.instant) {
		h.lose(l, late)
		return
	}
	if s.claims() {
		s.tries = 0
		h.renewNext(now, s)
	}
	h.setState(s, to)
	if to == stateHeld {
		h.emit(Held{l, s.instant})
	}
	h.moveUp(now, s)
}

// setDeadline computes the deadline from an acknowledged request that was first sent at first. If until is not zero, it
// is the deadline.
func (h *Renewer) setDeadline(now clock.Instant, s *slot, first clock.Instant, ttl time.Duration, until clock.Instant) {
	if until != (clock.Instant{}) {
		s.instant, s.length = until, max(0, first.Remaining(until))
		return
	}
	s.length = h.rules.trusted(h.config.Drift, ttl)
	s.instant = h.rules.from(first, now).Add(s.length)
}

// onUnknown handles a claim of unknown outcome: it schedules the next request to resolve it.
func (h *Renewer) onUnknown(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state != stateClaiming {
		return
	}
	h.setState(s, stateUnsettled)
	s.next = h.progressAfter(min(gap(s, s.length), longestGap))
	s.failed()
	h.moveUp(now, s)
}

// onRetire ends the renewals of a held lease. It stops waiting for those under way, so none of them is repeated; a late
// answer still counts.
func (h *Renewer) onRetire(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state != stateHeld || s.retired {
		return
	}
	h.dropIf(s, func(uint64) bool { return true })
	s.retired, s.next = true, never
	h.moveUp(now, s)
}

// onReleasing ends the right to act, because the driver is about to send a release. From here on instant is when the
// Renewer gives up the release.
func (h *Renewer) onReleasing(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state == stateReleasing {
		return
	}
	h.setState(s, stateReleasing)
	s.instant, s.next, s.sent, s.hedge, s.tries = now.Add(s.length), never, 0, 0, 0
}

// onReleaseFailed handles a release that failed or has an unknown outcome: it schedules the next attempt.
func (h *Renewer) onReleaseFailed(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state != stateReleasing || s.next != never {
		return
	}
	s.next = h.progressAfter(min(gap(s, now.Remaining(s.instant)), longestGap))
	s.failed()
	h.moveUp(now, s)
}
