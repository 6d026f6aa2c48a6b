package memory

import (
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Clock is a pair of clocks that a test moves. It is safe for concurrent use.
type Clock struct {
	follows bool
	start   time.Time

	mu    sync.Mutex
	hand  *clock.Manual
	moved chan struct{}
}

// NewClock returns clocks that stand still until they are moved.
func NewClock() *Clock {
	// Not at the origin: there, zero and now would look alike.
	return &Clock{hand: clock.NewManual(clock.Instant{}.Add(time.Hour)), moved: make(chan struct{})}
}

// NewRunningClock returns clocks that run with Go's own time, so in a bubble of testing/synctest a Sleep moves
// them. A test can also move them ahead.
func NewRunningClock() *Clock {
	c := NewClock()
	c.follows, c.start = true, time.Now()
	return c
}

// Now returns what both clocks show.
func (c *Clock) Now() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.follows {
		return c.hand.Now()
	}
	return c.hand.Now().Add(time.Since(c.start))
}

// Moved returns a channel that is closed when the clocks are next moved by hand.
func (c *Clock) Moved() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moved
}

// Advance moves both clocks ahead by d, as for a process that was stopped meanwhile. A negative d panics.
func (c *Clock) Advance(d time.Duration) { c.move(d, d) }

// Suspend moves the clocks as while the machine sleeps for d: only one of the two counts it.
func (c *Clock) Suspend(d time.Duration) { c.move(0, d) }

func (c *Clock) move(raw, boot time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hand.AdvanceBy(raw, boot)
	close(c.moved)
	c.moved = make(chan struct{})
}
