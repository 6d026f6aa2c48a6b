//go:build !linux && !darwin && !windows

package clock

import "time"

var origin = time.Now()

// Now reads the one monotonic clock that Go knows on this system and shows it as both readings. Whether it
// counts suspend depends on the system; a machine that sleeps should not run a lease server here.
func Now() Instant {
	elapsed := int64(time.Since(origin))
	return Instant{Raw: elapsed, Boot: elapsed}
}

// SystemDomain returns [UnknownDomain]: the clock's origin is the start of this process.
func SystemDomain() Domain { return UnknownDomain }
