package holder

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
	leases  []Lease       // while it waits
	giveUp  time.Duration // the progress at which it is abandoned
	longest time.Duration // of the lengths of its leases
	left    int           // answers outstanding, of leases that may have ended since
	waits   bool
	unsure  bool // an answer was that there is none, so there may yet be one
}

// message returns the message with a number, or nil if it is not remembered.
func (h *Holder) message(number uint64) *message {
	if number == 0 || number > h.number {
		panic(fmt.Sprintf("holder: there never was a message %d", number))
	}
	first := h.number - uint64(len(h.messages)) + 1
	if number < first {
		return nil
	}
	return &h.messages[number-first]
}

// renewed takes in one answer of a message.
func (h *Holder) renewed(now clock.Instant, number uint64, a Answer) {
	m, s := h.message(number), h.find(a.Lease)
	if s == nil || !s.renews() {
		return
	}
	if h.law.over(now, s.instant) {
		h.lose(a.Lease, Deadline)
		return
	}
	own := s.sent == number
	if own {
		s.sent = 0
		m.left--
		m.unsure = m.unsure || a.Outcome == Failed
	}
	switch {
	case a.Outcome == Gone:
		h.lose(a.Lease, Vanished)
	case a.Outcome == Acknowledged && m != nil && h.law.counts(number, s.acknowledged):
		h.acknowledge(now, number, m, s, a)
	case own:
		h.retry(now, s, 0)
	}
	if own && m.left == 0 {
		h.end(m)
	}
}

// acknowledge moves the deadline to what the answer is worth.
func (h *Holder) acknowledge(now clock.Instant, number uint64, m *message, s *slot, a Answer) {
	h.count(now, s, m.sent, a.TTL, a.Until)
	s.acknowledged, s.tries = number, 0
	if h.law.over(now, s.instant) {
		h.lose(a.Lease, Deadline)
		return
	}
	if s.doubted && now.Before(s.halfway()) {
		s.doubted = false
		h.emit(Assured{a.Lease})
	}
	if s.sent == 0 {
		h.renewNext(now, s)
	}
	h.sooner(now, s)
}

// returned takes in that a message will get no more answers.
func (h *Holder) returned(now clock.Instant, number uint64) {
	m := h.message(number)
	if m == nil || !m.waits {
		return
	}
	h.retryAll(now, number, m, 0)
	h.end(m)
}

// retryAll sets when those leases of a message are to be sent again that were not answered.
func (h *Holder) retryAll(now clock.Instant, number uint64, m *message, waited time.Duration) {
	for _, l := range m.leases {
		if s := h.find(l); s != nil && s.sent == number {
			s.sent = 0
			h.retry(now, s, waited)
		}
	}
}

// abandon gives up on the messages that were waited for long enough. Their leases are sent again at once, if
// the attempt took as long as there should be between two.
func (h *Holder) abandon(now clock.Instant) {
	if h.progress < h.patience {
		return
	}
	first := h.number - uint64(len(h.messages)) + 1
	for i := range h.messages {
		m, number := &h.messages[i], first+uint64(i)
		if !m.waits || m.giveUp > h.progress {
			continue
		}
		h.stats.Abandoned++
		h.emit(Abandon{number})
		h.retryAll(now, number, m, m.sent.Until(now))
		m.waits, m.leases = false, nil
	}
	h.lookAhead()
	h.prune(now)
}

// end stops waiting for a message.
func (h *Holder) end(m *message) {
	m.waits, m.leases = false, nil
	if m.giveUp <= h.patience {
		h.lookAhead()
	}
	h.prune(h.last)
}

// lookAhead finds out when the first message is to be abandoned.
func (h *Holder) lookAhead() {
	before := h.patience
	h.patience = never
	for i := range h.messages {
		if m := &h.messages[i]; m.waits && m.giveUp < h.patience {
			if h.patience = m.giveUp; h.patience == before {
				return
			}
		}
	}
}

// prune forgets the oldest messages that are of no use any more.
func (h *Holder) prune(now clock.Instant) {
	for len(h.messages) > 0 {
		m := &h.messages[0]
		useful := (m.left > 0 || m.unsure) && now.Before(m.sent.Add(m.longest)) && len(h.messages) <= keptMessages
		if m.waits || useful {
			return
		}
		h.messages = h.messages[1:]
	}
}
