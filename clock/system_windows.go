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

// Now reads this machine's two clocks (Windows 10 and later): the unbiased interrupt time, which stops in
// sleep and hibernation, and the interrupt time, which counts them. Both are steered by the same hardware
// counter and neither follows the wall clock.
func Now() Instant {
	return Instant{Raw: read(queryUnbiasedInterruptTimePrecise), Boot: read(queryInterruptTimePrecise)}
}

func read(proc *windows.LazyProc) int64 {
	var ticks uint64
	proc.Call(uintptr(unsafe.Pointer(&ticks))) // returns nothing and cannot fail
	return int64(ticks) * 100                  // the unit is 100 ns
}

// SystemDomain returns [UnknownDomain]: Windows names no boot that a process could read without rights,
// and guessing one from the wall clock would be worse than not knowing.
func SystemDomain() Domain { return UnknownDomain }
