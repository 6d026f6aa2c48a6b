package clock

import (
	"io"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now reads this machine's two clocks, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME, one directly after the
// other. Every Linux that Go supports has both, so a failure is a broken system and panics.
func Now() Instant {
	return Instant{Raw: read(unix.CLOCK_MONOTONIC_RAW), Boot: read(unix.CLOCK_BOOTTIME)}
}

func read(id int32) int64 {
	var ts unix.Timespec
	// It never blocks, so the scheduler need not know.
	if _, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic("clock: clock_gettime: " + err.Error())
	}
	return ts.Nano()
}

// bootID is where the kernel tells which boot this is.
const bootID = "/proc/sys/kernel/random/boot_id"

// SystemDomain returns the domain of this process: the kernel's boot id, and the time namespace, since a
// namespace shifts CLOCK_BOOTTIME. A container that hides either gets [UnknownDomain], which is safe: its
// instants are then never compared with anyone else's. One that has an id of its own in the place of the
// kernel's, as those of LXC and systemd-nspawn have, gets a domain of its own that names no boot: it begins with
// "container/" and not with "linux/". The answer does not change while the process runs.
func SystemDomain() Domain { return domainOf(bootID) }

// domainOf returns the domain of the boot, or of the container, that a file names.
func domainOf(path string) Domain {
	f, err := os.Open(path)
	if err != nil {
		return UnknownDomain
	}
	defer f.Close()
	id, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return UnknownDomain
	}
	namespace, err := os.Readlink("/proc/self/ns/time")
	if err != nil && !os.IsNotExist(err) {
		return UnknownDomain
	}
	kind := "container/"
	var in unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &in); err == nil && int64(in.Type) == unix.PROC_SUPER_MAGIC {
		kind = "linux/"
	}
	return Domain(kind + strings.TrimSpace(string(id)) + "/" + namespace)
}
