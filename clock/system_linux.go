package clock

import (
	"errors"
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

// SystemDomain returns the domain of this process: the kernel's boot id, and how far its time namespace shifts both
// clocks. The shifts stand for the namespace because two namespaces with the same shifts show the same clocks, and because
// the number of a namespace does not: the kernel gives it to the next one as soon as the last process has left.
//
// The domain is [UnknownDomain] where the shifts are not certain: in a container that hides them or the boot id, and in a
// process whose children live in another time namespace, since the kernel then tells the children's shifts. That is safe:
// instants of an unknown domain are never compared with anyone else's.
//
// A container with a boot id of its own in the place of the kernel's, as those of LXC and systemd-nspawn have, gets a
// domain that names no boot: it begins with "container/" and not with "linux/". The answer does not change while the
// process runs.
func SystemDomain() Domain { return domainOf(bootID, "/proc/self") }

// domainOf returns the domain of the boot, or of the container, that a file names, for the process that a folder of
// /proc describes.
func domainOf(bootID, process string) Domain {
	f, err := os.Open(bootID)
	if err != nil {
		return UnknownDomain
	}
	defer f.Close()
	id, err := io.ReadAll(io.LimitReader(f, 256))
	if err != nil {
		return UnknownDomain
	}
	shifts, known := shiftsOf(process)
	if !known {
		return UnknownDomain
	}
	kind := "container/"
	var in unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &in); err == nil && int64(in.Type) == unix.PROC_SUPER_MAGIC {
		kind = "linux/"
	}
	return Domain(kind + strings.TrimSpace(string(id)) + "/" + shifts)
}

// shiftsOf returns by how much the time namespace of a process shifts its clocks, such as "monotonic:0:0,boottime:0:0"
// (seconds and nanoseconds). It returns an empty text for a kernel that has no time namespaces.
func shiftsOf(process string) (shifts string, known bool) {
	own, err := os.Readlink(process + "/ns/time")
	children, errChildren := os.Readlink(process + "/ns/time_for_children")
	text, errShifts := os.ReadFile(process + "/timens_offsets")
	if os.IsNotExist(err) && os.IsNotExist(errChildren) && os.IsNotExist(errShifts) {
		_, err := os.Readlink(process + "/ns/mnt") // of any kernel, so that the others are missing and not hidden
		return "", err == nil
	}
	if errors.Join(err, errChildren, errShifts) != nil || own != children {
		return "", false
	}
	var clocks []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 { // the clock, seconds, nanoseconds
			return "", false
		}
		clocks = append(clocks, strings.Join(fields, ":"))
	}
	return strings.Join(clocks, ","), len(clocks) > 0
}
