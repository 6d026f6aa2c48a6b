package clock

import "time"

// Manual is a pair of clocks moved by hand, the twin of the machine's own in tests and simulations. The
// zero value stands at the origin. It is not safe for concurrent use: the one who moves it owns it.
type Manual struct {
	now Instant
}

// NewManual returns clocks that stand at start.
func NewManual(start Instant) *Manual { return &Manual{now: start} }

// Now returns what both clocks show.
func (m *Manual) Now() Instant { return m.now }

// Advance lets d pass on both clocks alike. Time does not run backwards: a negative d panics.
func (m *Manual) Advance(d time.Duration) Instant { return m.AdvanceBy(d, d) }

// Suspend lets d pass as it does while a machine sleeps: only the boot clock counts it.
func (m *Manual) Suspend(d time.Duration) Instant { return m.AdvanceBy(0, d) }

// AdvanceBy lets raw pass on one clock and boot on the other, as when one of them is slewed.
func (m *Manual) AdvanceBy(raw, boot time.Duration) Instant {
	if raw < 0 || boot < 0 {
		panic("clock: a clock of one domain never runs backwards: asked to advance by " + raw.String() + ", " + boot.String())
	}
	m.now = Instant{Raw: addSaturating(m.now.Raw, int64(raw)), Boot: addSaturating(m.now.Boot, int64(boot))}
	return m.now
}
