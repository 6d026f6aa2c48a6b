package clock

import (
	"fmt"
	"math"
	"time"
)

// An Instant is one moment read on the two clocks of one clock domain, in nanoseconds since two arbitrary but
// fixed origins. Comparing instants of different domains is meaningless, and an Instant cannot detect it. So
// a program that stores an Instant stores its [Domain] with it.
//
// The zero Instant is the origin of both clocks. An Instant is a plain value: copy it freely.
type Instant struct {
	// Raw advances at the hardware's own rate, is never slewed, and stands still while the machine is
	// suspended (Linux: CLOCK_MONOTONIC_RAW).
	Raw int64
	// Boot also counts the time in suspend. It may be slewed by several per cent to follow the wall clock
	// (Linux: CLOCK_BOOTTIME).
	Boot int64
}

// Add returns the instant d later on both clocks. It saturates instead of overflowing, so a deadline beyond
// the range never comes.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{Raw: addSaturating(i.Raw, int64(d)), Boot: addSaturating(i.Boot, int64(d))}
}

// Before reports whether i is before deadline on both clocks. A program may rely on a promise until deadline
// only while Before reports true.
func (i Instant) Before(deadline Instant) bool {
	return i.Raw < deadline.Raw && i.Boot < deadline.Boot
}

// After reports whether i is strictly past end on both clocks. A program that waits for end must wait until
// After reports true.
func (i Instant) After(end Instant) bool {
	return i.Raw > end.Raw && i.Boot > end.Boot
}

// Elapsed returns how much time has certainly passed from start to i: the smaller elapsed time of the two
// clocks, never less than zero.
func (i Instant) Elapsed(start Instant) time.Duration {
	return max(0, min(subSaturating(i.Raw, start.Raw), subSaturating(i.Boot, start.Boot)))
}

// Until returns how long a program must still wait for end, at least: the larger remaining time of the two
// clocks. It is zero or negative once both clocks have reached end.
func (i Instant) Until(end Instant) time.Duration {
	return max(subSaturating(end.Raw, i.Raw), subSaturating(end.Boot, i.Boot))
}

// Remaining returns how long a program may still rely on deadline: the smaller remaining time of the two
// clocks. It is zero or negative once either clock has reached deadline.
func (i Instant) Remaining(deadline Instant) time.Duration {
	return min(subSaturating(deadline.Raw, i.Raw), subSaturating(deadline.Boot, i.Boot))
}

// Later returns the later reading of each clock. An instant that is after the result is after both.
func (i Instant) Later(other Instant) Instant {
	return Instant{Raw: max(i.Raw, other.Raw), Boot: max(i.Boot, other.Boot)}
}

// String returns both readings as durations since their origins.
func (i Instant) String() string {
	if i.Raw == i.Boot {
		return time.Duration(i.Raw).String()
	}
	return fmt.Sprintf("raw %v boot %v", time.Duration(i.Raw), time.Duration(i.Boot))
}

// addSaturating returns a+b, limited to the range of int64.
func addSaturating(a, b int64) int64 {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	}
	return sum
}

// subSaturating returns a-b, limited to the range of int64.
func subSaturating(a, b int64) time.Duration {
	diff := a - b
	switch {
	case b < 0 && diff < a:
		return math.MaxInt64
	case b > 0 && diff > a:
		return math.MinInt64
	}
	return time.Duration(diff)
}
