package clock

import (
	"errors"
	"io"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Now reads this machine's two clocks, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME, one directly after the other.
// Every Linux that Go supports has both, so Now panics if a read fails.
func Now() Instant {
	return Instant{Raw: read(unix.CLOCK_MONOTONIC_RAW), Boot: read(unix.CLOCK_BOOTTIME)}
}

func read(id int32) int64 {
	var ts unix.Timespec
	// The call never blocks, so the scheduler need not know of it.
	if _, _, err := unix.RawSyscall(unix.SYS_CLOCK_GETTIME, uintptr(id), uintptr(unsafe.Pointer(&ts)), 0); err != 0 {
		panic("clock: clock_gettime: " + err.Error())
	}
	return ts.Nano()
}

// bootID is the file in which the kernel identifies the current boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// SystemDomain returns the domain of this process: the kernel's boot id, and the shifts by which its time
// namespace moves both clocks. The shifts identify the namespace, because two namespaces with equal shifts
// show the same clocks. The number of a namespace does not identify it: the kernel reuses the number once the
// last process has left.
//
// The domain is [UnknownDomain] if the shifts are not certain. That is so in a container that hides them or
// the boot id. It is also so in a process whose children live in another time namespace, because the kernel
// then reports the children's shifts. An unknown domain is safe, because its instants are never compared with
// those of other processes.
//
// A container of LXC or systemd-nspawn has a boot id of its own in the place of the kernel's. Its domain
// identifies the container and not a boot, so it begins with "container/" instead of "linux/". The result
// does not change while the process runs.
func SystemDomain() Domain { return domainOf(bootID, "/proc/self") }

// domainOf returns the domain of a process. bootID is the file that identifies the boot or the container.
// process is the directory of /proc that describes the process.
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

// shiftsOf returns by how much the time namespace of a process shifts its clocks, such as
// "monotonic:0:0,boottime:0:0" (seconds and nanoseconds). It returns an empty text for a kernel without time
// namespaces, and false if the shifts are not certain.
func shiftsOf(process string) (shifts string, known bool) {
	own, err := os.Readlink(process + "/ns/time")
	children, errChildren := os.Readlink(process + "/ns/time_for_children")
	text, errShifts := os.ReadFile(process + "/timens_offsets")
	if os.IsNotExist(err) && os.IsNotExist(errChildren) && os.IsNotExist(errShifts) {
		_, err := os.Readlink(process + "/ns/mnt") // every kernel has it: if it is readable, the others are missing and not hidden
		return "", err == nil
	}
	if errors.Join(err, errChildren, errShifts) != nil || own != children {
		return "", false
	}
	var clocks []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 { // clock, seconds, nanoseconds
			return "", false
		}
		clocks = append(clocks, strings.Join(fields, ":"))
	}
	return strings.Join(clocks, ","), len(clocks) > 0
}
