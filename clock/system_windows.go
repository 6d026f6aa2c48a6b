package clock

import (
	"unsafe"

	"golang.org/x/sys/windows"
)

var (
	kernelbase                        = windows.NewLazySystemDLL("kernelbase.dll")
	queryUnbiasedInterruptTimePrecise = kernelbase.NewProc("QueryUnbiasedInterruptTimePrecise")
	queryInterruptTimePrecise         = kernelbase.NewProc("QueryInterruptTimePrecise")
)

// Now reads this machine's two clocks (Windows 10 and later). The unbiased interrupt time stops in sleep and
// hibernation; the interrupt time counts them. Both follow the same hardware counter, and neither follows the
// wall clock.
func Now() Instant {
	return Instant{Raw: read(queryUnbiasedInterruptTimePrecise), Boot: read(queryInterruptTimePrecise)}
}

func read(proc *windows.LazyProc) int64 {
	var ticks uint64
	proc.Call(uintptr(unsafe.Pointer(&ticks))) // returns nothing and cannot fail
	return int64(ticks) * 100                  // the unit is 100 ns
}

// SystemDomain returns [UnknownDomain]. Windows has no boot id that a process can read without privileges,
// and a guess from the wall clock would be unsafe.
func SystemDomain() Domain { return UnknownDomain }
