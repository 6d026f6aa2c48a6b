package holder

import (
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Lease is the handle of one claim and what becomes of it. It is never used for another; the zero Lease
// is none.
type Lease uint64

// Slot is a small number that no two leases have at the same time, for whoever keeps more about a lease in
// a slice. It may be that of an earlier lease which has ended.
func (l Lease) Slot() int { return int(uint32(l)) }

// String is the slot, and which use of it this is.
func (l Lease) String() string { return fmt.Sprintf("%d.%d", uint32(l), uint64(l)>>32) }

// Holder is the right to act under all leases of one keeper. One goroutine owns it, or a lock.
type Holder struct {
	config Config
}

// New returns a Holder without leases.
func New(c Config) (*Holder, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return &Holder{config: c.withDefaults()}, nil
}

// Claim makes a handle for a claim that is about to be sent for the first time: now was read before that.
// The answer is one of [InLine], [Granted], [Refused] and [Unknown]. The only error is [ErrTTL].
func (h *Holder) Claim(now clock.Instant, ttl time.Duration) (Lease, error) {
	panic("holder: not written yet")
}

// Step takes in what has happened and returns what is to be done. The slice is valid until the next Step. A
// now that is earlier than one before is taken for that. Step panics if an event names a lease that was
// never made, or a message that was never asked for.
func (h *Holder) Step(now clock.Instant, e Event) []Effect {
	panic("holder: not written yet")
}

// Valid reports whether one may act under the lease now. Once it was false it stays so.
func (h *Holder) Valid(now clock.Instant, l Lease) bool { return false }

// Deadline returns the instant until which the lease may be relied on, or its place in line, if it is not
// renewed again, and false if it has ended, is being released, or its claim has not been answered.
func (h *Holder) Deadline(l Lease) (clock.Instant, bool) { return clock.Instant{}, false }

// Remaining returns for how long one may still act under the lease if it is not renewed again. It is zero or
// less if one may not.
func (h *Holder) Remaining(now clock.Instant, l Lease) time.Duration { return 0 }

// Stats counts what there is and what was done.
type Stats struct {
	Claiming, InLine, Held, Releasing int // leases by what they are
	InFlight                          int // messages that wait for answers
	Messages                          uint64
	Renewals                          uint64 // leases in all messages
	Abandoned                         uint64 // messages
	Lost                              uint64
}

// Stats returns the counts.
func (h *Holder) Stats() Stats { return Stats{} }
