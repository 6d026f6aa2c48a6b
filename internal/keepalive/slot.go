package keepalive

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// state is what a lease is at present.
type state uint8

const (
	unused    state = iota
	claiming        // its claim is on the way
	unsettled       // the outcome of its claim is unknown, and it is not asked about at present
	waiting         // stands in line
	held
	releasing
)

// slot is one lease. There may be many: it has 72 bytes.
type slot struct {
	// instant is the deadline of a lease that is held or waits. While claiming or unsettled it is when the
	// claim was first sent, while releasing when one stops trying.
	instant clock.Instant
	// length is from the acknowledged send to the deadline. While claiming or unsettled it is what the TTL
	// that was asked for is worth.
	length time.Duration
	// next is the progress at which to send again: a renewal, a hedge, a claim, a release. It is never while an
	// attempt is under way, or its hedge: their messages say when they are overdue.
	next time.Duration
	// acknowledged is the number of the newest message that counts, or the newest there was at the claim:
	// whatever has this number or an older one is too late for this lease.
	acknowledged uint64
	// sent is the number of the renewal under way, and hedge that of another one: a younger one that hedges it, or
	// what is left of a hedge whose renewal was answered. Either is 0 if there is none, and else above acknowledged.
	sent    uint64
	hedge   uint64
	use     uint32 // which lease in this slot it is, from 1
	index   uint32 // in the queue
	state   state
	tries   uint8 // attempts that failed in a row, when they should not have
	doubted bool
}

func (s *slot) claims() bool { return s.state == claiming || s.state == unsettled }
func (s *slot) renews() bool { return s.state == waiting || s.state == held }

// before returns the instant that lies part of the length before the deadline.
func (s *slot) before(part time.Duration) clock.Instant { return s.instant.Add(-part) }

// halfway is where doubt begins.
func (s *slot) halfway() clock.Instant { return s.before(s.length - s.length/2) }

// matters says whether a lease is to be sent once more when the message with this number fails or is overdue.
func (s *slot) matters(number uint64) bool {
	return s.sent == number || s.hedge == number && s.sent != 0 && s.sent < s.hedge
}

// awaits says whether the renewal with this number is under way.
func (s *slot) awaits(number uint64) bool { return s.sent == number || s.hedge == number }

// settle forgets the renewal with this number, which is under way.
func (s *slot) settle(number uint64) {
	if s.sent == number {
		s.sent = 0
	} else {
		s.hedge = 0
	}
}

func (s *slot) failed() {
	if s.tries < 255 {
		s.tries++
	}
}

func handle(i, use uint32) Lease { return Lease(uint64(use)<<32 | uint64(i)) }

// find returns the slot of a lease, or nil if it has ended.
func (h *Renewer) find(l Lease) *slot {
	i, use := uint32(l), uint32(l>>32)
	if int(i) >= len(h.slots) || use == 0 || use > h.slots[i].use || use == h.slots[i].use && h.slots[i].state == unused {
		panic(fmt.Sprintf("keepalive: there never was a lease %v", l))
	}
	if use < h.slots[i].use {
		return nil
	}
	return &h.slots[i]
}

// enter changes what a lease is.
func (h *Renewer) enter(s *slot, to state) {
	for _, c := range []struct {
		s state
		n int
	}{{s.state, -1}, {to, 1}} {
		switch c.s {
		case claiming, unsettled:
			h.stats.Claiming += c.n
		case waiting:
			h.stats.Queued += c.n
		case held:
			h.stats.Held += c.n
		case releasing:
			h.stats.Releasing += c.n
		}
	}
	s.state = to
}

// lose ends a lease that was not given back.
func (h *Renewer) lose(l Lease, why Cause) {
	h.dropIf(h.find(l), func(uint64) bool { return true })
	h.forget(l)
	h.stats.Lost++
	h.emit(Lost{l, why})
}

// forget frees the slot. From here on the handle is that of a lease which has ended.
func (h *Renewer) forget(l Lease) {
	i := uint32(l)
	h.queue.remove(h.slots, i)
	s := &h.slots[i]
	h.enter(s, unused)
	*s = slot{use: s.use + 1}
	h.free = append(h.free, i)
}

// key returns the progress at which a lease has to be looked at, at the earliest.
func (h *Renewer) key(now clock.Instant, s *slot) time.Duration {
	key := s.next
	if s.renews() {
		key = min(key, h.in(now.Remaining(s.instant)))
		if s.state == held && !s.doubted {
			key = min(key, h.in(now.Remaining(s.halfway())))
		}
	}
	return key
}

// sooner makes sure that a lease is looked at in time after something about it has changed.
func (h *Renewer) sooner(now clock.Instant, s *slot) {
	if key := h.key(now, s); key < h.queue.entries[s.index].key {
		h.queue.rekey(h.slots, h.queue.entries[s.index].slot, key)
	}
}
