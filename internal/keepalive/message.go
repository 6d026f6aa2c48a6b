package keepalive

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// keptMessages is how many messages are remembered whose answers may be late. An answer to one that was
// forgotten changes nothing.
const keptMessages = 1024

// message is one number that was given to the driver. It waits until it is answered, abandoned or returned;
// after that it is remembered while an answer that is late may be of use.
type message struct {
	sent    clock.Instant
	began   time.Duration // the progress at that moment
	leases  []Lease       // while it waits
	hedge   bool          // it was sent while an earlier attempt for each of its leases was under way
	overdue time.Duration // the progress at which those leases are sent again whose newest attempt it is; or never
	giveUp  time.Duration // the progress at which all of its leases may have ended
	longest time.Duration // of the lengths of its leases
	left    int           // leases for which it is under way, and those that were released since
	waits   bool
	unsure  bool // an answer was that there is none, or was not waited for, so there may yet be one
}

// next returns the progress at which there is something to be done about a message that waits.
func (m *message) next() time.Duration { return min(m.overdue, m.giveUp) }

// message returns the message with a number, or nil if it is not remembered.
func (h *Renewer) message(number uint64) *message {
	if number == 0 || number > h.number {
		panic(fmt.Sprintf("keepalive: there never was a message %d", number))
	}
	first := h.number - uint64(len(h.messages)) + 1
	if number < first {
		return nil
	}
	return &h.messages[number-first]
}

// renewed takes in one answer of a message.
func (h *Renewer) renewed(now clock.Instant, number uint64, a Answer) {
	m, s := h.message(number), h.find(a.Lease)
	if s == nil || !s.renews() {
		return
	}
	if h.law.over(now, s.instant) {
		h.lose(a.Lease, Deadline)
		return
	}
	own, matters := s.awaits(number), s.matters(number)
	if own {
		s.settle(number)
		m.left--
		m.unsure = m.unsure || a.Outcome == Failed
	}
	switch {
	case a.Outcome == Gone:
		h.lose(a.Lease, Vanished)
	case a.Outcome == Acknowledged && m != nil && h.law.counts(number, s.acknowledged):
		h.acknowledge(now, number, m, s, a)
	case own && matters:
		h.retry(now, s)
	}
	if own && m.left == 0 {
		h.end(m)
		h.prune(now)
	}
}

// acknowledge moves the deadline to what the answer is worth. Attempts that were sent before that message are of no
// use any more.
func (h *Renewer) acknowledge(now clock.Instant, number uint64, m *message, s *slot, a Answer) {
	h.count(now, s, m.sent, a.TTL, a.Until)
	s.acknowledged, s.tries = number, 0
	h.dropIf(s, func(sent uint64) bool { return h.law.overtaken(sent, number) })
	if h.law.over(now, s.instant) {
		h.lose(a.Lease, Deadline)
		return
	}
	if s.doubted && now.Before(s.halfway()) {
		s.doubted = false
		h.emit(Assured{a.Lease})
	}
	if s.sent == 0 {
		// What is left of a hedge goes on, but is not relied on: where each write rests on the one before it, as in a
		// database, it has failed.
		// The answer was slow if the next renewal is due already. That of others in the same message may come just now,
		// so wait for a moment; but not if little is left.
		if !h.renewNext(now, s) && now.Remaining(s.instant) > s.length/gapPart {
			s.next = h.onGrid(s, s.length/leastPart)
		}
	}
	h.sooner(now, s)
}

// returned takes in that a message will get no more answers.
func (h *Renewer) returned(now clock.Instant, number uint64) {
	m := h.message(number)
	if m == nil || !m.waits {
		return
	}
	for _, l := range m.leases {
		if s := h.find(l); s != nil && s.awaits(number) {
			matters := s.matters(number)
			s.settle(number)
			if matters {
				h.retry(now, s)
			}
		}
	}
	h.end(m)
	h.prune(now)
}

// dropIf drops the attempts for a lease whose numbers are such.
func (h *Renewer) dropIf(s *slot, such func(number uint64) bool) {
	for _, number := range []uint64{s.sent, s.hedge} {
		if number != 0 && such(number) {
			h.drop(s, number)
		}
	}
}

// drop stops waiting for the answer to one attempt for a lease. A message that nobody waits for is abandoned.
func (h *Renewer) drop(s *slot, number uint64) {
	s.settle(number)
	m := h.message(number)
	m.left--
	m.unsure = true
	if m.waits && m.left == 0 {
		h.abandon(number, m)
	}
}

// abandon stops waiting for a message.
func (h *Renewer) abandon(number uint64, m *message) {
	h.stats.Abandoned++
	h.emit(Abandon{number})
	h.end(m)
}

// lookAfter does what the time has come for with messages that wait.
func (h *Renewer) lookAfter(now clock.Instant) {
	if h.progress < h.patience {
		return
	}
	first := h.number - uint64(len(h.messages)) + 1
	for i := range h.messages {
		m, number := &h.messages[i], first+uint64(i)
		if m.waits && m.overdue <= h.progress {
			h.sendAgain(now, number, m)
		}
		if m.waits && m.giveUp <= h.progress {
			h.giveUp(now, number, m)
		}
	}
	h.lookAhead()
	h.prune(now)
}

// sendAgain has leases sent again whose attempt is overdue. It goes on: a store that is only slow answers it in time. A
// hedge that is overdue itself makes room for the next, which may find an endpoint that works, and so does what is left
// of an earlier one. Leases with more than twice the patience of the first that was overdue have a later turn.
func (h *Renewer) sendAgain(now clock.Instant, number uint64, m *message) {
	waited, later := h.progress-m.began, never
	for _, l := range m.leases {
		s := h.find(l)
		if s == nil || !s.matters(number) {
			continue
		}
		p := patience(s, now.Remaining(s.instant)+waited, m.hedge)
		if p > 2*waited {
			later = min(later, m.began+p)
			continue
		}
		if s.hedge != 0 && s.hedge != number {
			h.drop(s, s.hedge)
		}
		if !h.law.stays(s.hedge == number) {
			s.settle(number)
			m.left--
			m.unsure = true
		}
		s.failed()
		s.next = h.progress
		h.sooner(now, s)
	}
	m.overdue = later
	if m.left == 0 {
		h.abandon(number, m)
	}
}

// giveUp abandons a message when all of its leases have ended. Others may have been renewed by an earlier one since.
func (h *Renewer) giveUp(now clock.Instant, number uint64, m *message) {
	later := h.progress
	for _, l := range m.leases {
		if s := h.find(l); s != nil && s.awaits(number) && !h.law.over(now, s.instant) {
			later = max(later, h.in(max(1, now.Remaining(s.instant))))
		}
	}
	if later > h.progress {
		m.giveUp = later
		return
	}
	for _, l := range m.leases {
		if s := h.find(l); s != nil && s.awaits(number) {
			s.settle(number) // it is about to be lost
		}
	}
	h.abandon(number, m)
}

// end stops waiting for a message.
func (h *Renewer) end(m *message) {
	m.waits, m.leases = false, nil
	if m.next() <= h.patience {
		h.lookAhead()
	}
}

// lookAhead finds out when there is something to be done about a message.
func (h *Renewer) lookAhead() {
	before := h.patience
	h.patience = never
	for i := range h.messages {
		if m := &h.messages[i]; m.waits && m.next() < h.patience {
			if h.patience = m.next(); h.patience == before {
				return
			}
		}
	}
}

// prune forgets the oldest messages that are of no use any more.
func (h *Renewer) prune(now clock.Instant) {
	for len(h.messages) > 0 {
		m := &h.messages[0]
		useful := (m.left > 0 || m.unsure) && now.Before(m.sent.Add(m.longest)) && len(h.messages) <= keptMessages
		if m.waits || useful {
			return
		}
		h.messages = h.messages[1:]
	}
}
