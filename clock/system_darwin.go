package clock

import "golang.org/x/sys/unix"

// clockUptimeRaw is CLOCK_UPTIME_RAW of <time.h>: mach_absolute_time, which stops in sleep.
// CLOCK_MONOTONIC_RAW is mach_continuous_time, which counts sleep. macOS slews neither.
const clockUptimeRaw = 8

// Now reads this machine's two clocks, CLOCK_UPTIME_RAW and CLOCK_MONOTONIC_RAW, one directly after the
// other. Every macOS that Go supports has both, so Now panics if a read fails.
func Now() Instant {
	return Instant{Raw: read(clockUptimeRaw), Boot: read(unix.CLOCK_MONOTONIC_RAW)}
}

func read(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("clock: clock_gettime: " + err.Error())
	}
	return ts.Nano()
}

// SystemDomain returns the domain of this process: the kernel's boot session. It returns [UnknownDomain] if
// the kernel does not name one.
func SystemDomain() Domain {
	session, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil || session == "" {
		return UnknownDomain
	}
	return Domain("darwin/" + session)
}
