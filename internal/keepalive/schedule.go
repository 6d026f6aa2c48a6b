package keepalive

import (
	"math/bits"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// These divide the length of a lease, and the time left until its deadline, into parts.
const (
	turns       = 3   // a lease is renewed after one third of its length
	jitterPart  = 8   // a renewal comes earlier by at most an eighth of that third
	overduePart = 3   // an attempt is overdue after a third of the time left
	hedgePart   = 2   // a hedge is overdue after half of the time left
	gapPart     = 8   // an eighth of the time left lies between attempts that fail at once
	leastPart   = 64  // none of these waits is shorter than this part of the length
	gridPart    = 256 // retries are rounded up to multiples of this part of the length

	// firstGap bounds the wait before the first retry. The bound doubles with each failure, up to gapDoublings times.
	firstGap, gapDoublings = 250 * time.Millisecond, 16
	// longestGap bounds the wait before the next request to resolve a claim or a release of unknown outcome.
	longestGap = 15 * time.Second
)

// batch has the leases of one message, or of several if [Config.MaxIDs] requires that.
type batch struct {
	class      int
	leases     []Lease
	hedge      bool
	answerWait time.Duration // the shortest of its leases; see answerWait
	longest    time.Duration // the longest length of its leases
	ends       time.Duration // the progress at which the last deadline of its leases has passed
}

// renewNext schedules the renewal that follows the last acknowledged send. It returns false if that renewal is due
// already. A retired lease has no next renewal.
func (h *Renewer) renewNext(now clock.Instant, s *slot) bool {
	if s.retired {
		s.next = never
		return true
	}
	third := s.length / turns
	jitter := third / jitterPart / 1024 * time.Duration(scramble(h.config.Seed^s.acknowledged)%1024)
	if h.config.steady {
		jitter = 0
	}
	left := now.Remaining(s.before(s.length - third + jitter))
	s.next = h.progressAfter(left)
	return left > 0
}

// retry schedules the next attempt for a lease after one has failed. If a hedge failed, the attempt that it hedged is
// still under way.
func (h *Renewer) retry(now clock.Instant, s *slot) {
	if s.sent != 0 || !h.renewNext(now, s) {
		s.next = h.onGrid(s, gap(s, now.Remaining(s.instant)))
		s.failed()
	}
	h.moveUp(now, s)
}

// onGrid returns the progress after d, rounded up. The answers to one message arrive one after the other; rounding lets
// their leases be sent again in one message.
func (h *Renewer) onGrid(s *slot, d time.Duration) time.Duration {
	at, grid := h.progressAfter(d), s.length/gridPart
	if grid <= 1 || at >= never-grid || h.config.steady {
		return at
	}
	return (at + grid - 1) / grid * grid
}

// gap returns how long to wait before the next attempt, given the time left until the deadline.
func gap(s *slot, left time.Duration) time.Duration {
	g := max(left/gapPart, s.length/leastPart, 1)
	if s.tries < gapDoublings {
		g = min(g, firstGap<<s.tries)
	}
	return g
}

// answerWait returns how long to wait for an answer before the attempt is overdue, given the time left at the send.
func answerWait(s *slot, left time.Duration, hedge bool) time.Duration {
	part := time.Duration(overduePart)
	if hedge {
		part = hedgePart
	}
	return max(left/part, s.length/leastPart, 1)
}

// scramble is the finalizer of splitmix64: different inputs give outputs that look unrelated.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// runDue handles every message and lease that is due.
func (h *Renewer) runDue(now clock.Instant) {
	h.checkMessages(now)
	h.due = h.queue.upTo(h.progress, 0, h.due[:0])
	if len(h.due) == 0 {
		return
	}
	slices.Sort(h.due)
	h.batches = h.batches[:0]
	ahead := time.Duration(-1)
	for _, i := range h.due {
		if third, fresh := h.runLease(now, i); fresh && (ahead < 0 || third < ahead) {
			ahead = third
		}
	}
	if ahead >= 0 {
		h.addEarly(now, h.progressAfter(ahead))
	}
	for i := range h.batches {
		h.send(now, &h.batches[i])
		h.batches[i] = batch{}
	}
	h.requeue(now)
}

// runLease handles one lease if it is due. fresh is true if it added the lease to a message for a regular renewal, so
// that others may be added early; third is then a third of its length.
func (h *Renewer) runLease(now clock.Instant, i uint32) (third time.Duration, fresh bool) {
	s := &h.slots[i]
	l := handle(i, s.use)
	switch s.state {
	case stateUnsettled, stateReleasing:
		if s.next <= h.progress {
			h.requestResolve(now, l, s)
		}
	case stateQueued, stateHeld:
		if h.rules.expired(now, s.instant) {
			h.lose(l, Deadline)
			return 0, false
		}
		if s.mayDoubt() && !now.Before(s.halfway()) {
			s.doubted = true
			h.emit(Doubt{l})
		}
		if s.next <= h.progress {
			h.addToBatch(now, i)
			return s.length / turns, s.tries == 0
		}
	}
	return 0, false
}

// requestResolve emits a Resolve for an unknown outcome, or reports the end of the claim or release.
func (h *Renewer) requestResolve(now clock.Instant, l Lease, s *slot) {
	s.next = never
	switch {
	case s.state == stateReleasing && !h.rules.expired(now, s.instant):
		h.emit(Resolve{Lease: l, Release: true})
	case s.state == stateReleasing:
		h.forget(l)
		h.emit(GaveUp{l})
	case h.rules.expired(now, s.instant.Add(s.length)): // a grant would have expired by now
		h.lose(l, Void)
	default:
		h.setState(s, stateClaiming)
		h.emit(Resolve{Lease: l})
	}
}

// addEarly adds to the message each lease whose regular renewal would be due before the next message.
func (h *Renewer) addEarly(now clock.Instant, until time.Duration) {
	h.due = h.queue.upTo(until, 0, h.due[:0]) // also finds those that were due, unless they have ended
	slices.Sort(h.due)
	for _, i := range h.due {
		if s := &h.slots[i]; s.renews() && s.tries == 0 && s.next <= until {
			h.addToBatch(now, i)
		}
	}
}

// addToBatch adds a lease to a batch. All regular renewals share one. A lease whose renewals fail shares one with leases
// of about the same answerWait, so that short leases do not make long ones retry too often.
func (h *Renewer) addToBatch(now clock.Instant, i uint32) {
	s, class := &h.slots[i], 0
	left, hedge := now.Remaining(s.instant), s.sent != 0
	p := answerWait(s, left, hedge)
	if s.tries > 0 {
		class = 1 + bits.Len64(uint64(p))/2
	}
	at := slices.IndexFunc(h.batches, func(b batch) bool { return b.class == class && b.hedge == hedge })
	if at < 0 {
		at = len(h.batches)
		h.batches = append(h.batches, batch{class: class, hedge: hedge, answerWait: p})
	}
	b := &h.batches[at]
	b.leases = append(b.leases, handle(i, s.use))
	b.answerWait, b.longest, b.ends = min(b.answerWait, p), max(b.longest, s.length), max(b.ends, h.progressAfter(left))
	s.next = never
}

// send emits the messages of a batch.
func (h *Renewer) send(now clock.Instant, b *batch) {
	limit := len(b.leases)
	if h.config.MaxIDs > 0 {
		limit = min(limit, h.config.MaxIDs)
	}
	h.prune(now)
	for leases := range slices.Chunk(b.leases, limit) {
		h.number++
		for _, l := range leases {
			if s := h.find(l); b.hedge {
				s.hedge = h.number
			} else {
				s.sent = h.number
			}
		}
		m := message{
			sent: now, began: h.progress, leases: leases, hedge: b.hedge, overdue: h.progressAfter(b.answerWait), expire: b.ends,
			longest: b.longest, left: len(leases), waits: true,
		}
		if h.config.NoHedge {
			m.overdue = never
		}
		h.messages = append(h.messages, m)
		h.messagesDue = min(h.messagesDue, m.next())
		h.stats.Messages++
		if b.hedge {
			h.stats.Hedges++
		}
		h.stats.Renewals += uint64(len(leases))
		h.emit(Renew{h.number, leases, b.hedge})
	}
}

// requeue corrects the queue entries of all leases in h.due. If they are many, ordering the whole queue is cheaper.
func (h *Renewer) requeue(now clock.Instant) {
	many := len(h.due) > len(h.queue.entries)/8
	for _, i := range h.due {
		s := &h.slots[i]
		switch {
		case s.state == stateUnused:
		case many:
			h.queue.entries[s.index].key = h.dueAt(now, s)
		default:
			h.queue.rekey(h.slots, i, h.dueAt(now, s))
		}
	}
	if many {
		h.queue.order(h.slots)
	}
}
