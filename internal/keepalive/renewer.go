package keepalive

import (
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Lease is the handle of one claim and of the lease that it becomes. No other claim of the Renewer gets the same handle.
// The zero Lease is no handle.
type Lease uint64

// Slot returns a small number that no other lease has at the same time: an index for a slice in which the driver keeps
// more about the lease. A lease that has ended may have had the same number.
func (l Lease) Slot() int { return int(uint32(l)) }

// String returns the slot and the count of leases that had it, such as 3.1.
func (l Lease) String() string { return fmt.Sprintf("%d.%d", uint32(l), uint64(l)>>32) }

// Renewer knows for all leases of one keeper whether the caller may act under them, and decides when to renew them. It is
// not safe for concurrent use.
type Renewer struct {
	config Config
	rules  rules

	started bool
	last    clock.Instant // the latest reading of each clock
	// progress is the sum, over all steps, of the time that the faster clock advanced in the step. Since any earlier
	// moment neither clock has advanced further. So neither clock reaches an instant before progress has grown by the
	// time that was left. It orders the queue and spaces attempts; deadlines are instants.
	progress time.Duration

	slots []slot
	free  []uint32
	queue queue

	number      uint64        // of the newest message; 0 before the first
	messages    []message     // consecutive numbers, up to the newest; see prune
	messagesDue time.Duration // a lower bound of the progress at which a message needs attention

	effects       []Effect
	scheduledWake time.Duration // the progress at which the last WakeAt is due; or never
	wakeInstant   clock.Instant // the instant of the last WakeAt
	due           []uint32      // of runDue, kept for its memory
	batches       []batch       // of runDue, kept for its memory
	stats         Stats
}

// never is a progress that is not reached.
const never = time.Duration(math.MaxInt64)

// New returns a Renewer without leases.
func New(c Config) (*Renewer, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Renewer{config: c.withDefaults(), rules: strictRules, messagesDue: never, scheduledWake: never}, nil
}

// Claim makes a handle for a claim that the driver is about to send for the first time. The driver must have read now
// before the send. It reports the answer as one of [Queued], [Granted], [Refused] and [Unknown]. The only error is
// [ErrTTL].
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
		instant: now, length: h.rules.trusted(h.config.Drift, ttl), next: never,
		acknowledged: h.number, use: s.use,
	}
	h.setState(s, stateClaiming)
	h.queue.push(h.slots, i, never)
	return handle(i, s.use), nil
}

// Step handles an event and returns what the driver must do. The slice is valid until the next Step. If a clock of now
// is earlier than in an earlier call, Step uses the earlier call's reading. Step panics if an event names a lease that
// Claim did not make, or a message that no [Renew] had.
func (h *Renewer) Step(now clock.Instant, e Event) []Effect {
	h.effects = h.effects[:0]
	now = h.advance(now)
	switch e := e.(type) {
	case Wake:
	case Queued:
		h.onClaimAnswer(now, e.Lease, stateQueued, e.TTL, e.Until)
	case Granted:
		h.onClaimAnswer(now, e.Lease, stateHeld, e.TTL, e.Until)
	case Refused:
		if s := h.find(e.Lease); s != nil && s.claims() {
			h.forget(e.Lease)
		}
	case Unknown:
		h.onUnknown(now, e.Lease)
	case Renewed:
		for _, a := range e.Answers {
			h.onAnswer(now, e.Number, a)
		}
	case Returned:
		h.onReturned(now, e.Number)
	case Ended:
		if s := h.find(e.Lease); s != nil && s.state != stateReleasing {
			h.lose(e.Lease, EndReported)
		}
	case Retire:
		h.onRetire(now, e.Lease)
	case Releasing:
		h.onReleasing(now, e.Lease)
	case Released:
		if h.find(e.Lease) != nil {
			h.forget(e.Lease)
		}
	case ReleaseFailed:
		h.onReleaseFailed(now, e.Lease)
	default:
		// fmt would move every event to the heap.
		panic("keepalive: unknown event " + reflect.TypeOf(e).String())
	}
	h.runDue(now)
	h.scheduleWake(now)
	return h.effects
}

// advance updates progress and returns the latest reading of each clock. An earlier reading is a lower bound of the
// present time, no matter which goroutine read it.
func (h *Renewer) advance(now clock.Instant) clock.Instant {
	if !h.started {
		h.started, h.last = true, now
		return now
	}
	now = clock.Instant{Raw: max(now.Raw, h.last.Raw), Boot: max(now.Boot, h.last.Boot)}
	h.progress = h.progressAfter(h.last.Until(now))
	h.last = now
	return now
}

// progressAfter returns what progress will be after d, or never if d is too long.
func (h *Renewer) progressAfter(d time.Duration) time.Duration {
	if d >= never-h.progress {
		return never
	}
	return h.progress + max(d, 0)
}

// scheduleWake emits a WakeAt for the next moment at which a lease or a message needs attention, unless the last WakeAt
// is for the same.
func (h *Renewer) scheduleWake(now clock.Instant) {
	next := h.messagesDue
	if len(h.queue.entries) > 0 {
		next = min(next, h.queue.entries[0].key)
	}
	if next == never {
		h.scheduledWake = never
		return
	}
	at := now.Add(next - h.progress)
	if next == h.scheduledWake && at.Until(h.wakeInstant) < sameWake {
		return
	}
	h.scheduledWake, h.wakeInstant = next, at
	h.emit(WakeAt{at})
}

// sameWake is how far the two clocks may drift apart before the Renewer requests the same wake-up again: the requested
// instant has a reading of each clock, and the deadline may count on either.
const sameWake = time.Millisecond

func (h *Renewer) emit(e Effect) { h.effects = append(h.effects, e) }

// Valid reports whether the caller may act under the lease now. Once it has returned false it stays false, provided that
// later calls of Step pass no earlier instants.
func (h *Renewer) Valid(now clock.Instant, l Lease) bool {
	s := h.find(l)
	return s != nil && s.state == stateHeld && !h.rules.expired(now, s.instant)
}

// Deadline returns the instant until which the caller can rely on the lease, or on its place in the queue, without another
// renewal. It returns false if the lease has ended, is being released, or its claim has not been answered.
func (h *Renewer) Deadline(l Lease) (clock.Instant, bool) {
	if s := h.find(l); s != nil && s.renews() {
		return s.instant, true
	}
	return clock.Instant{}, false
}

// Remaining returns for how long the caller may still act under the lease without another renewal. It returns zero or less
// if the caller may not act.
func (h *Renewer) Remaining(now clock.Instant, l Lease) time.Duration {
	if s := h.find(l); s != nil && s.state == stateHeld {
		return now.Remaining(s.instant)
	}
	return 0
}

// Stats are counts of a Renewer.
type Stats struct {
	Claiming, Queued, Held, Releasing int    // leases, by state
	InFlight                          int    // messages that wait for answers
	Messages                          uint64 // messages of renewals so far
	Hedges                            uint64 // those messages that were hedges
	Renewals                          uint64 // leases in all messages
	Abandoned                         uint64 // messages abandoned so far
	Lost                              uint64 // leases lost so far
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
