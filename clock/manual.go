package clock

import "time"

// Manual is a pair of clocks that a test or a simulation moves by hand. The zero value shows the origin. It
// is not safe for concurrent use.
type Manual struct {
	now Instant
}

// NewManual returns clocks that show start.
func NewManual(start Instant) *Manual { return &Manual{now: start} }

// Now returns the readings of both clocks.
func (m *Manual) Now() Instant { return m.now }

// Advance advances both clocks by d. It panics on a negative d, because clocks never run backwards.
func (m *Manual) Advance(d time.Duration) Instant { return m.AdvanceBy(d, d) }

// Suspend advances only the boot clock by d, as when a machine sleeps.
func (m *Manual) Suspend(d time.Duration) Instant { return m.AdvanceBy(0, d) }

// AdvanceBy advances one clock by raw and the other by boot, as when one of them is slewed. It panics on a
// negative length.
func (m *Manual) AdvanceBy(raw, boot time.Duration) Instant {
	if raw < 0 || boot < 0 {
		panic("clock: cannot advance by " + raw.String() + " and " + boot.String() + ": a clock never runs backwards")
	}
	m.now = Instant{Raw: addSaturating(m.now.Raw, int64(raw)), Boot: addSaturating(m.now.Boot, int64(boot))}
	return m.now
}
