package holder

import (
	"math/bits"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// How the length of a lease, and what is left of it, is divided.
const (
	turns        = 3  // renewals in one length: renew after a third
	jitterPart   = 8  // of that third is what a renewal may come earlier
	patiencePart = 3  // of what is left is waited for an answer
	gapPart      = 8  // of what is left is between attempts
	leastPart    = 64 // of the whole length is the least of both

	// firstGap is between the first attempts of long leases. It doubles with every one.
	firstGap, gapDoublings = 250 * time.Millisecond, 16
	// mostPatience is how long an answer is waited for at most, also if much is left, and how long a claim or
	// a release is not asked about.
	mostPatience = 15 * time.Second
)

// batch is what will be one message, or several if there is a limit.
type batch struct {
	class    int
	leases   []Lease
	patience time.Duration
	longest  time.Duration
}

// renewNext sets when a lease is to be renewed, counted from the last acknowledged send, and reports false
// if that has come already.
func (h *Holder) renewNext(now clock.Instant, s *slot) bool {
	third := s.length / turns
	jitter := third / jitterPart / 1024 * time.Duration(scramble(h.config.Seed^s.acknowledged)%1024)
	if h.config.steady {
		jitter = 0
	}
	left := now.Remaining(s.before(s.length - third + jitter))
	s.next = h.in(left)
	return left > 0
}

// retry sets when a lease is to be sent again after an attempt that failed. What the attempt was waited for
// counts towards the time between two.
func (h *Holder) retry(now clock.Instant, s *slot, waited time.Duration) {
	if !h.renewNext(now, s) {
		s.next = h.in(gap(s, now.Remaining(s.instant)) - waited)
		s.failed()
	}
	h.sooner(now, s)
}

// gap is how long to wait until the next attempt if so much is left.
func gap(s *slot, left time.Duration) time.Duration {
	g := max(left/gapPart, s.length/leastPart, 1)
	if s.tries < gapDoublings {
		g = min(g, firstGap<<s.tries)
	}
	return g
}

// patience is how long to wait for an answer that is asked for now.
func patience(now clock.Instant, s *slot) time.Duration {
	p := max(now.Remaining(s.instant)/patiencePart, s.length/leastPart, 1)
	return min(p, mostPatience)
}

// scramble is the finalizer of splitmix64: unlike inputs have outputs that look unrelated.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// run does what the time has come for.
func (h *Holder) run(now clock.Instant) {
	h.abandon(now)
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
func (h *Holder) judge(now clock.Instant, i uint32) (third time.Duration, fresh bool) {
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
func (h *Holder) resolve(now clock.Instant, l Lease, s *slot) {
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
func (h *Holder) takeAlong(now clock.Instant, until time.Duration) {
	h.due = h.queue.upTo(until, 0, h.due[:0]) // those that were due are still there, or have ended
	slices.Sort(h.due)
	for _, i := range h.due {
		if s := &h.slots[i]; s.renews() && s.tries == 0 && s.next <= until {
			h.board(now, i)
		}
	}
}

// board puts a lease into a message. Leases in their rhythm share one. Leases in trouble share one with
// those of about the same patience, so that short ones do not cut off the attempts of long ones.
func (h *Holder) board(now clock.Instant, i uint32) {
	s, class := &h.slots[i], 0
	p := patience(now, s)
	if s.tries > 0 {
		class = 1 + bits.Len64(uint64(p))/2
	}
	at := slices.IndexFunc(h.batches, func(b batch) bool { return b.class == class })
	if at < 0 {
		at = len(h.batches)
		h.batches = append(h.batches, batch{class: class, patience: p})
	}
	b := &h.batches[at]
	b.leases = append(b.leases, handle(i, s.use))
	b.patience, b.longest = min(b.patience, p), max(b.longest, s.length)
	s.next = never
}

// send asks for the messages of a batch.
func (h *Holder) send(now clock.Instant, b *batch) {
	limit := len(b.leases)
	if h.config.MaxIDs > 0 {
		limit = min(limit, h.config.MaxIDs)
	}
	h.prune(now)
	for leases := range slices.Chunk(b.leases, limit) {
		h.number++
		for _, l := range leases {
			h.find(l).sent = h.number
		}
		m := message{
			sent: now, leases: leases, giveUp: h.in(b.patience), longest: b.longest, left: len(leases), waits: true,
		}
		h.messages = append(h.messages, m)
		h.patience = min(h.patience, m.giveUp)
		h.stats.Messages++
		h.stats.Renewals += uint64(len(leases))
		h.emit(Renew{h.number, leases})
	}
}

// requeue puts right the entries of all leases that were looked at. If they are many it is cheaper to order
// the whole queue.
func (h *Holder) requeue(now clock.Instant) {
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
