//go:build !linux && !darwin && !windows

package clock

import "time"

// origin is the start of this process.
var origin = time.Now()

// Now reads the one monotonic clock that Go has on this system, and returns it as both readings. The system
// decides whether that clock counts suspend. Do not run a lease server here on a machine that sleeps.
func Now() Instant {
	elapsed := int64(time.Since(origin))
	return Instant{Raw: elapsed, Boot: elapsed}
}

// SystemDomain returns [UnknownDomain], because the clock's origin is the start of this process.
func SystemDomain() Domain { return UnknownDomain }
