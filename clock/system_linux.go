package clock

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Now reads this machine's two clocks, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME, one directly after the
// other. Every Linux that Go supports has both, so a failure is a broken system and panics.
func Now() Instant {
	return Instant{Raw: read(unix.CLOCK_MONOTONIC_RAW), Boot: read(unix.CLOCK_BOOTTIME)}
}

func read(id int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		panic("clock: clock_gettime: " + err.Error())
	}
	return ts.Nano()
}

// SystemDomain returns the domain of this process: the kernel's boot id, and the time namespace, since a
// namespace shifts CLOCK_BOOTTIME. A container that hides either gets [UnknownDomain], which is safe: its
// instants are then never compared with anyone else's. The answer does not change while the process runs.
func SystemDomain() Domain {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return UnknownDomain
	}
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !os.IsNotExist(err) {
		return UnknownDomain
	}
	return Domain("linux/" + strings.TrimSpace(string(boot)) + "/" + namespace)
}
