package keepalive

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Lease is the handle of one claim and what becomes of it. It is never used for another; the zero Lease
// is none.
type Lease uint64

// Slot is a small number that no two leases have at the same time, for a driver that keeps more about a lease in a
// slice. It may be that of an earlier lease which has ended.
func (l Lease) Slot() int { return int(uint32(l)) }

// String is the slot, and which use of it this is.
func (l Lease) String() string { return fmt.Sprintf("%d.%d", uint32(l), uint64(l)>>32) }

// Renewer is the right to act under all leases of one keeper. One goroutine owns it, or a lock.
type Renewer struct {
	config Config
	law    law

	began bool
	last  clock.Instant // the latest readings seen, each for itself
	// progress is the sum of what the faster clock has gained in every step. Either clock has gained at most
	// as much since any earlier moment, so what is due when either reaches an instant is not due before
	// progress has grown by what was left. It orders the queue and spaces attempts; deadlines are instants.
	progress time.Duration

	slots []slot
	free  []uint32
	queue queue

	number   uint64        // of the newest message
	messages []message     // from the oldest that may still be answered to the newest, one for each number
	patience time.Duration // the progress at which the first of them is overdue or given up, or less

	effects []Effect
	told    time.Duration // the progress for which the last WakeAt was
	toldAt  clock.Instant // and the instant that it named
	due     []uint32      // scratch
	batches []batch       // scratch
	stats   Stats
}

const never = time.Duration(math.MaxInt64)

// New returns a Renewer without leases.
func New(c Config) (*Renewer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Renewer{config: c.withDefaults(), law: careful, patience: never, told: never}, nil
}

// Claim makes a handle for a claim that is about to be sent for the first time: now was read before that.
// The answer is one of [Queued], [Granted], [Refused] and [Unknown]. The only error is [ErrTTL].
func (h *Renewer) Claim(now clock.Instant, ttl time.Duration) (Lease, error) {
	if ttl < MinTTL {
		return 0, ErrTTL
	}
	h.advance(now)
	var i uint32
	if n := len(h.free); n > 0 {
		i, h.free = h.free[n-1], h.free[:n-1]
	} else {
		i = uint32(len(h.slots))
		h.slots = append(h.slots, slot{use: 1})
	}
	s := &h.slots[i]
	*s = slot{
		instant: now, length: h.law.relies(h.config.Drift, ttl), next: never,
		acknowledged: h.number, use: s.use,
	}
	h.enter(s, claiming)
	h.queue.push(h.slots, i, never)
	return handle(i, s.use), nil
}

// Step takes in what has happened and returns what is to be done. The slice is valid until the next Step. A
// now that is earlier than one before is taken for that. Step panics if an event names a lease that was
// never made, or a message that was never asked for.
func (h *Renewer) Step(now clock.Instant, e Event) []Effect {
	h.effects = h.effects[:0]
	now = h.advance(now)
	switch e := e.(type) {
	case Wake:
	case Queued:
		h.answered(now, e.Lease, waiting, e.TTL, e.Until)
	case Granted:
		h.answered(now, e.Lease, held, e.TTL, e.Until)
	case Refused:
		if s := h.find(e.Lease); s != nil && s.claims() {
			h.forget(e.Lease)
		}
	case Unknown:
		h.unknown(now, e.Lease)
	case Renewed:
		for _, a := range e.Answers {
			h.renewed(now, e.Number, a)
		}
	case Returned:
		h.returned(now, e.Number)
	case Ended:
		if s := h.find(e.Lease); s != nil && s.state != releasing {
			h.lose(e.Lease, Told)
		}
	case Releasing:
		h.releasing(now, e.Lease)
	case Released:
		if h.find(e.Lease) != nil {
			h.forget(e.Lease)
		}
	case ReleaseFailed:
		h.releaseFailed(now, e.Lease)
	default:
		// Not by way of fmt, which would have every event made on the heap.
		panic("keepalive: there is no event " + reflect.TypeOf(e).String())
	}
	h.run(now)
	h.wake(now)
	return h.effects
}

// advance takes in the time and returns the latest readings seen. What was read before is a lower bound of
// the time now, no matter which goroutine read it.
func (h *Renewer) advance(now clock.Instant) clock.Instant {
	if !h.began {
		h.began, h.last = true, now
		return now
	}
	now = clock.Instant{Raw: max(now.Raw, h.last.Raw), Boot: max(now.Boot, h.last.Boot)}
	h.progress = h.in(h.last.Until(now))
	h.last = now
	return now
}

// in returns the progress a while from now.
func (h *Renewer) in(d time.Duration) time.Duration {
	if d >= never-h.progress {
		return never
	}
	return h.progress + max(d, 0)
}

// wake asks for the next look at the time if that is not what was asked for before.
func (h *Renewer) wake(now clock.Instant) {
	next := h.patience
	if len(h.queue.entries) > 0 {
		next = min(next, h.queue.entries[0].key)
	}
	if next == never {
		h.told = never
		return
	}
	at := now.Add(next - h.progress)
	if next == h.told && at.Until(h.toldAt) < sameWake {
		return
	}
	h.told, h.toldAt = next, at
	h.emit(WakeAt{at})
}

// sameWake is how far the clocks may have drifted apart until a wake-up is requested again: the instant that
// was told stands for both of them, and what is due then may count on either.
const sameWake = time.Millisecond

func (h *Renewer) emit(e Effect) { h.effects = append(h.effects, e) }

// Valid reports whether one may act under the lease now. Once it was false it stays so, if the instants
// with which Step is called afterwards are not earlier than the ones asked about.
func (h *Renewer) Valid(now clock.Instant, l Lease) bool {
	s := h.find(l)
	return s != nil && s.state == held && !h.law.over(now, s.instant)
}

// Deadline returns the instant until which the lease may be relied on, or its place in line, if it is not
// renewed again, and false if it has ended, is being released, or its claim has not been answered.
func (h *Renewer) Deadline(l Lease) (clock.Instant, bool) {
	if s := h.find(l); s != nil && s.renews() {
		return s.instant, true
	}
	return clock.Instant{}, false
}

// Remaining returns for how long one may still act under the lease if it is not renewed again. It is zero or
// less if one may not.
func (h *Renewer) Remaining(now clock.Instant, l Lease) time.Duration {
	if s := h.find(l); s != nil && s.state == held {
		return now.Remaining(s.instant)
	}
	return 0
}

// Stats counts what there is and what was done.
type Stats struct {
	Claiming, Queued, Held, Releasing int    // leases by what they are
	InFlight                          int    // messages that wait for answers
	Messages                          uint64 // of renewals, that were asked for
	Hedges                            uint64 // those of them that were sent because an earlier one was overdue
	Renewals                          uint64 // leases in all of these
	Abandoned                         uint64 // messages
	Lost                              uint64 // leases
}

// Stats returns the counts.
func (h *Renewer) Stats() Stats {
	stats := h.stats
	for i := range h.messages {
		if h.messages[i].waits {
			stats.InFlight++
		}
	}
	return stats
}
