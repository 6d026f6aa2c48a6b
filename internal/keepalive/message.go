package keepalive

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// keptMessages bounds how many messages the Renewer keeps for late answers. An answer to a message that it no longer has
// changes nothing.
const keptMessages = 1024

// message is one message of renewals that a Renew asked the driver to send. It waits until it is answered, abandoned or
// returned. Afterwards the Renewer keeps it while a late answer could still extend a lease.
type message struct {
	sent       clock.Instant
	began      time.Duration // [Renewer.progress] at that moment
	leases     []Lease       // nil when it no longer waits
	hedge      bool          // it was sent while an earlier attempt for each of its leases was under way
	overdue    time.Duration // the progress at which its leases are due for a hedge or another hedge; or never
	expire     time.Duration // the progress at which all of its leases may have ended
	longest    time.Duration // the longest length of its leases
	left       int           // the number of its leases that are unanswered, released ones included
	waits      bool
	lateAnswer bool // the attempt failed or was dropped for some lease, so an answer may still come
}

// next returns the progress at which a message that waits needs attention.
func (m *message) next() time.Duration { return min(m.overdue, m.expire) }

// message returns the message with a number, or nil if the Renewer no longer has it.
func (h *Renewer) message(number uint64) *message {
	if number == 0 || number > h.number {
		panic(fmt.Sprintf("keepalive: message %d was never sent", number))
	}
	first := h.number - uint64(len(h.messages)) + 1
	if number < first {
		return nil
	}
	return &h.messages[number-first]
}

// onAnswer handles the answer of one message about one lease.
func (h *Renewer) onAnswer(now clock.Instant, number uint64, a Answer) {
	m, s := h.message(number), h.find(a.Lease)
	if s == nil || !s.renews() {
		return
	}
	if h.rules.expired(now, s.instant) {
		h.lose(a.Lease, Deadline)
		return
	}
	own, matters := s.awaits(number), s.matters(number)
	if own {
		s.settle(number)
		m.left--
		m.lateAnswer = m.lateAnswer || a.Outcome == Failed
	}
	switch {
	case a.Outcome == Gone:
		h.lose(a.Lease, Vanished)
	case a.Outcome == Acknowledged && m != nil && h.rules.counts(number, s.acknowledged):
		h.acknowledge(now, number, m, s, a)
	case own && matters:
		h.retry(now, s)
	}
	if own && m.left == 0 {
		h.endMessage(m)
		h.prune(now)
	}
}

// acknowledge sets the deadline that follows from the answer. It drops the attempts that were sent before that message:
// no answer to them can change anything now.
func (h *Renewer) acknowledge(now clock.Instant, number uint64, m *message, s *slot, a Answer) {
	h.setDeadline(now, s, m.sent, a.TTL, a.Until)
	s.acknowledged, s.tries = number, 0
	h.dropIf(s, func(sent uint64) bool { return h.rules.superseded(sent, number) })
	if h.rules.expired(now, s.instant) {
		h.lose(a.Lease, Deadline)
		return
	}
	if s.doubted && !s.retired && now.Before(s.halfway()) {
		s.doubted = false
		h.emit(Assured{a.Lease})
	}
	if s.sent == 0 {
		// A hedge that is still under way goes on, but may have failed: in a database each write depends on the one
		// before it. So the next renewal is scheduled in any case. If it is due already, the answer was slow. The answers
		// about other leases of the message are then probably arriving, so wait a moment and renew them together, unless
		// little time is left.
		if !h.renewNext(now, s) && now.Remaining(s.instant) > s.length/gapPart {
			s.next = h.onGrid(s, s.length/leastPart)
		}
	}
	h.moveUp(now, s)
}

// onReturned handles a message that gets no more answers: it schedules the retry of its unanswered leases.
func (h *Renewer) onReturned(now clock.Instant, number uint64) {
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
	h.endMessage(m)
	h.prune(now)
}

// dropIf drops the attempts for a lease whose numbers match.
func (h *Renewer) dropIf(s *slot, match func(number uint64) bool) {
	for _, number := range []uint64{s.sent, s.hedge} {
		if number != 0 && match(number) {
			h.drop(s, number)
		}
	}
}

// drop stops waiting for the answer of one message about one lease. If no lease waits for the message, drop abandons it.
func (h *Renewer) drop(s *slot, number uint64) {
	s.settle(number)
	m := h.message(number)
	m.left--
	m.lateAnswer = true
	if m.waits && m.left == 0 {
		h.abandonMessage(number, m)
	}
}

// abandonMessage stops waiting for a message and emits Abandon.
func (h *Renewer) abandonMessage(number uint64, m *message) {
	h.stats.Abandoned++
	h.emit(Abandon{number})
	h.endMessage(m)
}

// checkMessages hedges the messages that are overdue, and abandons those whose leases have ended.
func (h *Renewer) checkMessages(now clock.Instant) {
	if h.progress < h.messagesDue {
		return
	}
	first := h.number - uint64(len(h.messages)) + 1
	for i := range h.messages {
		m, number := &h.messages[i], first+uint64(i)
		if m.waits && m.overdue <= h.progress {
			h.hedgeOverdue(now, number, m)
		}
		if m.waits && m.expire <= h.progress {
			h.abandonExpired(now, number, m)
		}
	}
	h.updateMessagesDue()
	h.prune(now)
}

// hedgeOverdue schedules a hedge for each lease whose attempt is overdue. The attempt goes on, because a slow store
// still answers it in time. An overdue hedge is dropped, and so is an earlier hedge that is still under way: the next
// one may reach an endpoint that works. Leases that can wait more than twice as long as the first overdue one are left
// for a later call.
func (h *Renewer) hedgeOverdue(now clock.Instant, number uint64, m *message) {
	waited, later := h.progress-m.began, never
	for _, l := range m.leases {
		s := h.find(l)
		if s == nil || !s.matters(number) {
			continue
		}
		p := answerWait(s, now.Remaining(s.instant)+waited, m.hedge)
		if p > 2*waited {
			later = min(later, m.began+p)
			continue
		}
		if s.hedge != 0 && s.hedge != number {
			h.drop(s, s.hedge)
		}
		if !h.rules.stays(s.hedge == number) {
			s.settle(number)
			m.left--
			m.lateAnswer = true
		}
		s.failed()
		s.next = h.progress
		h.moveUp(now, s)
	}
	m.overdue = later
	if m.left == 0 {
		h.abandonMessage(number, m)
	}
}

// abandonExpired abandons a message if all leases that wait for it have ended. If an earlier message has renewed one of
// them meanwhile, it computes again when the last of them ends.
func (h *Renewer) abandonExpired(now clock.Instant, number uint64, m *message) {
	later := h.progress
	for _, l := range m.leases {
		if s := h.find(l); s != nil && s.awaits(number) && !h.rules.expired(now, s.instant) {
			later = max(later, h.progressAfter(max(1, now.Remaining(s.instant))))
		}
	}
	if later > h.progress {
		m.expire = later
		return
	}
	for _, l := range m.leases {
		if s := h.find(l); s != nil && s.awaits(number) {
			s.settle(number) // the lease has expired, and runLease is about to report it
		}
	}
	h.abandonMessage(number, m)
}

// endMessage notes that no lease waits for a message.
func (h *Renewer) endMessage(m *message) {
	m.waits, m.leases = false, nil
	if m.next() <= h.messagesDue {
		h.updateMessagesDue()
	}
}

// updateMessagesDue computes when a message needs attention next.
func (h *Renewer) updateMessagesDue() {
	before := h.messagesDue
	h.messagesDue = never
	for i := range h.messages {
		if m := &h.messages[i]; m.waits && m.next() < h.messagesDue {
			if h.messagesDue = m.next(); h.messagesDue == before {
				return
			}
		}
	}
}

// prune removes the oldest messages up to the first one that waits or whose late answer could still extend a lease.
func (h *Renewer) prune(now clock.Instant) {
	for len(h.messages) > 0 {
		m := &h.messages[0]
		useful := (m.left > 0 || m.lateAnswer) && now.Before(m.sent.Add(m.longest)) && len(h.messages) <= keptMessages
		if m.waits || useful {
			return
		}
		h.messages = h.messages[1:]
	}
}
