package keepalive

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// state is the state of a lease.
type state uint8

const (
	stateUnused    state = iota
	stateClaiming        // its claim is under way
	stateUnsettled       // the outcome of its claim is unknown, and no request to resolve it is under way
	stateQueued          // it waits in the queue of its name
	stateHeld
	stateReleasing
)

// slot has the data of one lease. There may be many: a slot has 72 bytes.
type slot struct {
	// instant is the deadline of a lease that is held or queued. While claiming or unsettled it is when the claim was
	// first sent, and while releasing it is when the Renewer gives up the release.
	instant clock.Instant
	// length is the time from the acknowledged send to the deadline. While claiming or unsettled it is the part of the
	// claimed TTL that the client can rely on.
	length time.Duration
	// next is the progress at which to send a renewal, a hedge, a claim or a release. It is never while an attempt or a
	// hedge is under way: then message.overdue says when to send again.
	next time.Duration
	// acknowledged is the number of the newest acknowledged message, or that of the newest message when the claim was
	// made. Answers to this number or an older one change nothing.
	acknowledged uint64
	// sent is the number of the renewal under way, or 0. hedge is the number of a second attempt under way, or 0: the
	// hedge of sent, or a hedge that goes on after sent was answered. Numbers other than 0 are above acknowledged.
	sent    uint64
	hedge   uint64
	use     uint32 // counts the leases that had this slot, from 1
	index   uint32 // of its entry in the queue
	state   state
	tries   uint8 // attempts that failed or were overdue in a row
	doubted bool  // Doubt was reported, and Assured was not
	retired bool  // it is held and not renewed any longer
}

// claims reports whether its claim has not been answered yet.
func (s *slot) claims() bool { return s.state == stateClaiming || s.state == stateUnsettled }

// renews reports whether the lease is renewed: it is held or queued.
func (s *slot) renews() bool { return s.state == stateQueued || s.state == stateHeld }

// before returns the instant that lies part before the deadline.
func (s *slot) before(part time.Duration) clock.Instant { return s.instant.Add(-part) }

// halfway returns the instant at which doubt begins.
func (s *slot) halfway() clock.Instant { return s.before(s.length - s.length/2) }

// mayDoubt reports whether halfway is an instant at which Doubt is due.
func (s *slot) mayDoubt() bool { return s.state == stateHeld && !s.doubted && !s.retired }

// matters reports whether the lease must be sent again if the message with this number fails or is overdue.
func (s *slot) matters(number uint64) bool {
	return s.sent == number || s.hedge == number && s.sent != 0 && s.sent < s.hedge
}

// awaits reports whether the lease waits for an answer to the message with this number.
func (s *slot) awaits(number uint64) bool { return s.sent == number || s.hedge == number }

// settle notes that the lease no longer waits for the message with this number.
func (s *slot) settle(number uint64) {
	if s.sent == number {
		s.sent = 0
	} else {
		s.hedge = 0
	}
}

// failed counts an attempt that failed or was overdue.
func (s *slot) failed() {
	if s.tries < 255 {
		s.tries++
	}
}

// handle returns the handle of the lease that is the use-th in slot i.
func handle(i, use uint32) Lease { return Lease(uint64(use)<<32 | uint64(i)) }

// find returns the slot of a lease, or nil if it has ended.
func (h *Renewer) find(l Lease) *slot {
	i, use := uint32(l), uint32(l>>32)
	if int(i) >= len(h.slots) || use == 0 || use > h.slots[i].use || use == h.slots[i].use && h.slots[i].state == stateUnused {
		panic(fmt.Sprintf("keepalive: lease %v was never claimed", l))
	}
	if use < h.slots[i].use {
		return nil
	}
	return &h.slots[i]
}

// setState changes the state of a lease and the counts of leases by state.
func (h *Renewer) setState(s *slot, to state) {
	for _, c := range []struct {
		s state
		n int
	}{{s.state, -1}, {to, 1}} {
		switch c.s {
		case stateClaiming, stateUnsettled:
			h.stats.Claiming += c.n
		case stateQueued:
			h.stats.Queued += c.n
		case stateHeld:
			h.stats.Held += c.n
		case stateReleasing:
			h.stats.Releasing += c.n
		}
	}
	s.state = to
}

// lose ends a lease that was not released, and reports the cause.
func (h *Renewer) lose(l Lease, why Cause) {
	h.dropIf(h.find(l), func(uint64) bool { return true })
	h.forget(l)
	h.stats.Lost++
	h.emit(Lost{l, why})
}

// forget frees the slot of a lease. From here on the handle is that of a lease that has ended.
func (h *Renewer) forget(l Lease) {
	i := uint32(l)
	h.queue.remove(h.slots, i)
	s := &h.slots[i]
	h.setState(s, stateUnused)
	*s = slot{use: s.use + 1}
	h.free = append(h.free, i)
}

// dueAt returns a lower bound of the progress at which a lease needs attention.
func (h *Renewer) dueAt(now clock.Instant, s *slot) time.Duration {
	key := s.next
	if s.renews() {
		key = min(key, h.progressAfter(now.Remaining(s.instant)))
		if s.mayDoubt() {
			key = min(key, h.progressAfter(now.Remaining(s.halfway())))
		}
	}
	return key
}

// moveUp moves a lease up in the queue if a change has made it due earlier.
func (h *Renewer) moveUp(now clock.Instant, s *slot) {
	if key := h.dueAt(now, s); key < h.queue.entries[s.index].key {
		h.queue.rekey(h.slots, h.queue.entries[s.index].slot, key)
	}
}
