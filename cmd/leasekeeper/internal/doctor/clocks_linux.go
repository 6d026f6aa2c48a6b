package doctor

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	sourcesDir = "/sys/devices/system/clocksource/clocksource0/"
	shiftsFile = "/proc/self/timens_offsets"
)

// checkClockSystem checks what Linux says about its clocks. server reports whether the machine runs a server.
func checkClockSystem(server bool) []Check {
	text, _ := os.ReadFile(shiftsFile) // without the file there are no shifts
	shifts := shiftsIn(string(text))
	return []Check{checkSource(), checkKernelClock(), checkSuspended(shifts, server), judgeDomain(clock.SystemDomain(), len(shifts) > 0)}
}

func checkSource() Check {
	current, err := os.ReadFile(sourcesDir + "current_clocksource")
	if err != nil {
		return skipped("clock source", "the kernel does not show it here: %v", err)
	}
	available, _ := os.ReadFile(sourcesDir + "available_clocksource") // only for advice
	return judgeSource(strings.TrimSpace(string(current)), strings.Fields(string(available)))
}

func checkKernelClock() Check {
	var about unix.Timex // with no mode set the call only reads
	state, err := unix.Adjtimex(&about)
	if err != nil {
		return skipped("time service", "the kernel does not say whether the wall clock is synchronised: %v", err)
	}
	const fraction = 1 << 16 // Freq has 16 bits after the point
	return judgeKernelClock(kernelClock{
		synchronised: state != unix.TIME_ERROR && about.Status&unix.STA_UNSYNC == 0,
		maxError:     time.Duration(about.Maxerror) * time.Microsecond,
		ppm:          float64(about.Freq) / fraction,
	})
}

// checkSuspended compares the clock that counts suspension with the one that does not. Both run at the same rate.
func checkSuspended(shifts map[string]time.Duration, server bool) Check {
	var boot, awake unix.Timespec
	errBoot, errAwake := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot), unix.ClockGettime(unix.CLOCK_MONOTONIC, &awake)
	if errBoot != nil || errAwake != nil {
		return skipped("suspension", "a clock cannot be read")
	}
	d := time.Duration(boot.Nano()-awake.Nano()) - shifts["boottime"] + shifts["monotonic"]
	return judgeSuspended(d, server)
}

// shiftsIn returns the shifts in the text of timens_offsets that are not zero, by clock.
func shiftsIn(text string) map[string]time.Duration {
	shifts := make(map[string]time.Duration)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 { // clock, seconds, nanoseconds
			continue
		}
		seconds, errSeconds := strconv.ParseInt(fields[1], 10, 64)
		nanos, errNanos := strconv.ParseInt(fields[2], 10, 64)
		if d := time.Duration(seconds)*time.Second + time.Duration(nanos); errSeconds == nil && errNanos == nil && d != 0 {
			shifts[fields[0]] = d
		}
	}
	return shifts
}
