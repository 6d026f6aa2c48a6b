package keepalive

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// answered takes in that a claim stands in line or holds its name.
func (h *Renewer) answered(now clock.Instant, l Lease, to state, ttl time.Duration, until clock.Instant) {
	s, late := h.find(l), Deadline
	switch {
	case s == nil:
		return
	case s.claims():
		late = Void
		h.count(now, s, s.instant, ttl, until)
	case s.state == waiting && to == held:
		if h.law.over(now, s.instant) {
			break // lost below, whatever the news says
		}
		s.instant = h.law.yours(s.instant, now, s.length)
		if s.instant.Before(until) {
			s.instant = until
			s.length = now.Remaining(until)
		}
	default:
		return // said twice, or too late to matter
	}
	if h.law.over(now, s.instant) {
		h.lose(l, late)
		return
	}
	if s.claims() {
		s.tries = 0
		h.renewNext(now, s)
	}
	h.enter(s, to)
	if to == held {
		h.emit(Held{l, s.instant})
	}
	h.sooner(now, s)
}

// count sets the deadline by an acknowledged request that was first sent at first.
func (h *Renewer) count(now clock.Instant, s *slot, first clock.Instant, ttl time.Duration, until clock.Instant) {
	if until != (clock.Instant{}) {
		s.instant, s.length = until, max(0, first.Remaining(until))
		return
	}
	s.length = h.law.relies(h.config.Drift, ttl)
	s.instant = h.law.from(first, now).Add(s.length)
}

// unknown takes in that nobody knows what became of a claim.
func (h *Renewer) unknown(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state != claiming {
		return
	}
	h.enter(s, unsettled)
	s.next = h.in(min(gap(s, s.length), longestGap))
	s.failed()
	h.sooner(now, s)
}

// releasing takes in that a lease is about to be given back.
func (h *Renewer) releasing(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state == releasing {
		return
	}
	h.enter(s, releasing)
	s.instant, s.next, s.sent, s.hedge, s.tries = now.Add(s.length), never, 0, 0, 0
}

// releaseFailed takes in that nobody knows whether a lease was given back.
func (h *Renewer) releaseFailed(now clock.Instant, l Lease) {
	s := h.find(l)
	if s == nil || s.state != releasing || s.next != never {
		return
	}
	s.next = h.in(min(gap(s, now.Remaining(s.instant)), longestGap))
	s.failed()
	h.sooner(now, s)
}
