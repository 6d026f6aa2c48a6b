package keepalive

import (
	"math/bits"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// How the length of a lease, and what is left of it, is divided.
const (
	turns       = 3   // renewals in one length: renew after a third
	jitterPart  = 8   // of that third is what a renewal may come earlier
	overduePart = 3   // of what is left is waited for an answer until a hedge is sent
	hedgePart   = 2   // of what is left is waited for the answer to a hedge
	gapPart     = 8   // of what is left is between attempts that fail
	leastPart   = 64  // of the whole length is the least of these
	gridPart    = 256 // of the whole length is between the moments at which leases in trouble are sent again

	// firstGap is between the first attempts of long leases. It doubles with every one.
	firstGap, gapDoublings = 250 * time.Millisecond, 16
	// longestGap is how long a claim or a release of unknown outcome is not asked about.
	longestGap = 15 * time.Second
)

// batch is what will be one message, or several if there is a limit.
type batch struct {
	class    int
	leases   []Lease
	hedge    bool
	patience time.Duration // the shortest of its leases
	longest  time.Duration // of their lengths
	ends     time.Duration // the progress at which the last of them has come to its deadline
}

// renewNext sets when a lease is to be renewed, counted from the last acknowledged send, and reports false
// if that has come already.
func (h *Renewer) renewNext(now clock.Instant, s *slot) bool {
	third := s.length / turns
	jitter := third / jitterPart / 1024 * time.Duration(scramble(h.config.Seed^s.acknowledged)%1024)
	if h.config.steady {
		jitter = 0
	}
	left := now.Remaining(s.before(s.length - third + jitter))
	s.next = h.in(left)
	return left > 0
}

// retry sets when a lease is to be sent again after an attempt has failed. If that was a hedge, what it hedges is still
// under way.
func (h *Renewer) retry(now clock.Instant, s *slot) {
	if s.sent != 0 || !h.renewNext(now, s) {
		s.next = h.onGrid(s, gap(s, now.Remaining(s.instant)))
		s.failed()
	}
	h.sooner(now, s)
}

// onGrid returns the progress a while from now, or a little later. The answers to one message come one after the other,
// and the leases in it are to be sent again together, not one by one.
func (h *Renewer) onGrid(s *slot, d time.Duration) time.Duration {
	at, grid := h.in(d), s.length/gridPart
	if grid <= 1 || at >= never-grid || h.config.steady {
		return at
	}
	return (at + grid - 1) / grid * grid
}

// gap is how long to wait until the next attempt if so much is left.
func gap(s *slot, left time.Duration) time.Duration {
	g := max(left/gapPart, s.length/leastPart, 1)
	if s.tries < gapDoublings {
		g = min(g, firstGap<<s.tries)
	}
	return g
}

// patience is how long to wait for an answer until another attempt is made, if so much is left when it is asked for.
func patience(s *slot, left time.Duration, hedge bool) time.Duration {
	part := time.Duration(overduePart)
	if hedge {
		part = hedgePart
	}
	return max(left/part, s.length/leastPart, 1)
}

// scramble is the finalizer of splitmix64: unlike inputs have outputs that look unrelated.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// run does what the time has come for.
func (h *Renewer) run(now clock.Instant) {
	h.lookAfter(now)
	h.due = h.queue.upTo(h.progress, 0, h.due[:0])
	if len(h.due) == 0 {
		return
	}
	slices.Sort(h.due)
	h.batches = h.batches[:0]
	ahead := time.Duration(-1)
	for _, i := range h.due {
		if third, fresh := h.judge(now, i); fresh && (ahead < 0 || third < ahead) {
			ahead = third
		}
	}
	if ahead >= 0 {
		h.takeAlong(now, h.in(ahead))
	}
	for i := range h.batches {
		h.send(now, &h.batches[i])
		h.batches[i] = batch{}
	}
	h.requeue(now)
}

// judge does what the time has come for with one lease, if it has come. It reports a third of its length if
// the lease was put into a message because of its rhythm, so that others may come along.
func (h *Renewer) judge(now clock.Instant, i uint32) (third time.Duration, fresh bool) {
	s := &h.slots[i]
	l := handle(i, s.use)
	switch s.state {
	case unsettled, releasing:
		if s.next <= h.progress {
			h.resolve(now, l, s)
		}
	case waiting, held:
		if h.law.over(now, s.instant) {
			h.lose(l, Deadline)
			return 0, false
		}
		if s.state == held && !s.doubted && !now.Before(s.halfway()) {
			s.doubted = true
			h.emit(Doubt{l})
		}
		if s.next <= h.progress {
			h.board(now, i)
			return s.length / turns, s.tries == 0
		}
	}
	return 0, false
}

// resolve asks to settle what is not known, or gives up.
func (h *Renewer) resolve(now clock.Instant, l Lease, s *slot) {
	s.next = never
	switch {
	case s.state == releasing && !h.law.over(now, s.instant):
		h.emit(Resolve{Lease: l, Release: true})
	case s.state == releasing:
		h.forget(l)
		h.emit(GaveUp{l})
	case h.law.over(now, s.instant.Add(s.length)): // a grant would come too late by now
		h.lose(l, Void)
	default:
		h.enter(s, claiming)
		h.emit(Resolve{Lease: l})
	}
}

// takeAlong puts into the message whatever would be due in its rhythm before the next one.
func (h *Renewer) takeAlong(now clock.Instant, until time.Duration) {
	h.due = h.queue.upTo(until, 0, h.due[:0]) // those that were due are still there, or have ended
	slices.Sort(h.due)
	for _, i := range h.due {
		if s := &h.slots[i]; s.renews() && s.tries == 0 && s.next <= until {
			h.board(now, i)
		}
	}
}

// board puts a lease into a message. Leases in their rhythm share one. Leases in trouble share one with
// those of about the same patience, so that short ones do not draw long ones into their hurry.
func (h *Renewer) board(now clock.Instant, i uint32) {
	s, class := &h.slots[i], 0
	left, hedge := now.Remaining(s.instant), s.sent != 0
	p := patience(s, left, hedge)
	if s.tries > 0 {
		class = 1 + bits.Len64(uint64(p))/2
	}
	at := slices.IndexFunc(h.batches, func(b batch) bool { return b.class == class && b.hedge == hedge })
	if at < 0 {
		at = len(h.batches)
		h.batches = append(h.batches, batch{class: class, hedge: hedge, patience: p})
	}
	b := &h.batches[at]
	b.leases = append(b.leases, handle(i, s.use))
	b.patience, b.longest, b.ends = min(b.patience, p), max(b.longest, s.length), max(b.ends, h.in(left))
	s.next = never
}

// send asks for the messages of a batch.
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
			sent: now, began: h.progress, leases: leases, hedge: b.hedge, overdue: h.in(b.patience), giveUp: b.ends,
			longest: b.longest, left: len(leases), waits: true,
		}
		if h.config.NoHedge {
			m.overdue = never
		}
		h.messages = append(h.messages, m)
		h.patience = min(h.patience, m.next())
		h.stats.Messages++
		if b.hedge {
			h.stats.Hedges++
		}
		h.stats.Renewals += uint64(len(leases))
		h.emit(Renew{h.number, leases, b.hedge})
	}
}

// requeue puts right the entries of all leases that were looked at. If they are many it is cheaper to order
// the whole queue.
func (h *Renewer) requeue(now clock.Instant) {
	many := len(h.due) > len(h.queue.entries)/8
	for _, i := range h.due {
		s := &h.slots[i]
		switch {
		case s.state == unused:
		case many:
			h.queue.entries[s.index].key = h.key(now, s)
		default:
			h.queue.rekey(h.slots, i, h.key(now, s))
		}
	}
	if many {
		h.queue.order(h.slots)
	}
}
