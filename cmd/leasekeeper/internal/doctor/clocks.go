package doctor

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// slewPPM is the greatest deviation of a clock's rate, in parts per million, that a time service causes on a good machine.
	slewPPM = 500
	// clockReadings is the number of readings of which the closest counts.
	clockReadings = 50
	// stepReadings bounds the search for the smallest step of the clocks.
	stepReadings = 100_000
	// unknownStep counts as the smallest step of clocks that do not move during that search.
	unknownStep = int64(10 * time.Millisecond)
)

// clockReading is one reading of the clocks at about one moment, in nanoseconds.
type clockReading struct {
	raw, boot, wall int64
	span            int64 // the greatest time between two of them
}

// readClocks reads the clocks several times, and returns the reading with the shortest span. step is the smallest step of the
// clocks: no span is shorter.
func readClocks(step int64) clockReading {
	best := clockReading{span: math.MaxInt64}
	for range clockReadings {
		before := clock.Now()
		wall := time.Now().UnixNano()
		after := clock.Now()
		span := max(step, after.Raw-before.Raw+after.Boot-before.Boot)
		if span < best.span && after.Raw >= before.Raw {
			best = clockReading{raw: before.Raw + (after.Raw-before.Raw)/2, boot: before.Boot + (after.Boot-before.Boot)/2, wall: wall, span: span}
		}
	}
	return best
}

// clockStep returns the smallest step of the machine's clocks that it observes, in nanoseconds.
func clockStep() int64 {
	first, least := clock.Now(), int64(0)
	for range stepReadings {
		now := clock.Now()
		if least = min(now.Raw-first.Raw, now.Boot-first.Boot); least > 0 {
			return least
		}
	}
	return unknownStep
}

// clockRates are the rates of clocks relative to each other, over the time between two readings.
type clockRates struct {
	elapsed time.Duration // by the raw clock
	boot    float64       // of the boot clock relative to the raw one, in parts per million
	wall    float64       // of the wall clock relative to the boot clock, in parts per million
	bound   float64       // the error of each, in parts per million
}

// ratesOf returns the rates between two readings. known is false if the raw clock did not move on.
func ratesOf(from, to clockReading) (rates clockRates, known bool) {
	raw, boot, wall := to.raw-from.raw, to.boot-from.boot, to.wall-from.wall
	if raw <= 0 || boot <= 0 {
		return clockRates{}, false
	}
	ppm := func(part, whole int64) float64 { return float64(part) / float64(whole) * 1e6 }
	return clockRates{elapsed: time.Duration(raw), boot: ppm(boot-raw, raw), wall: ppm(wall-boot, boot), bound: ppm(from.span+to.span, raw)}, true
}

// judgeRate judges the rate of the boot clock relative to the raw one. drift is the deviation that leases allow for.
func judgeRate(r clockRates, known bool, drift clock.Drift) Check {
	const name = "clock rate"
	if !known {
		return bad(Fail, name, "a clock of this machine does not go forward",
			"restart the machine; if the clock still stands, choose another clock source, or move to another machine")
	}
	found := fmt.Sprintf("%+.1f ppm of the raw clock (±%.1f) in %s; allowed %d", r.boot, r.bound, brief(r.elapsed), int64(drift))
	deviation := math.Abs(r.boot) - r.bound
	switch {
	case deviation > float64(drift):
		return bad(Fail, name, found, "the two clocks differ by more than leases allow for: check for a suspended or migrated virtual machine, stop the service that slews the clock, then run this again; --clock-drift is the bound of a server")
	case r.bound > float64(drift):
		return skipped(name, "the error of the measurement (±%.0f ppm) is above the bound: use a longer --clock-interval", r.bound)
	case deviation > slewPPM:
		return bad(Warn, name, found, "the time service changes the rate by more than %d ppm: check its log, and let it step the clock once instead", slewPPM)
	}
	return good(name, "%s", found)
}

// judgeWall judges the rate of the wall clock, which no lease depends on.
func judgeWall(r clockRates, known bool) Check {
	const name = "wall clock"
	if !known {
		return skipped(name, "the clocks to compare it with do not go forward")
	}
	found := fmt.Sprintf("%+.1f ppm of the boot clock (±%.1f)", r.wall, r.bound)
	if math.Abs(r.wall)-r.bound > slewPPM {
		return bad(Warn, name, found, "something set the wall clock during the measurement: run one time service only; leases do not depend on it, but times in histories and logs do")
	}
	return good(name, "%s", found)
}

// goodSources are the clock sources of Linux that read a counter of the processor or the hypervisor.
var goodSources = []string{"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "hyperv_clocksource_msr", "xen", "timebase", "tod", "riscv_clocksource", "stick", "vmware-hypercall"}

// judgeSource judges a clock source of Linux. available are those that the kernel offers.
func judgeSource(current string, available []string) Check {
	const name = "clock source"
	if slices.Contains(goodSources, current) {
		return good(name, "%s", current)
	}
	why := "reading it is slow, and it may be coarse"
	for _, better := range goodSources {
		if slices.Contains(available, better) {
			return bad(Warn, name, current+": "+why, "write %s into /sys/devices/system/clocksource/clocksource0/current_clocksource, and boot with clocksource=%s, unless the kernel's log says that it is unstable", better, better)
		}
	}
	return bad(Warn, name, current+": "+why, "see in the kernel's log (dmesg) why it uses this clock source: it often finds the processor's counter unstable, which new firmware or another host may cure")
}

// kernelClock is what the kernel says about its wall clock.
type kernelClock struct {
	synchronised bool
	maxError     time.Duration // the greatest error, as far as the kernel knows
	ppm          float64       // the correction of the rate
}

// judgeKernelClock judges whether a time service sets the wall clock.
func judgeKernelClock(k kernelClock) Check {
	const name = "time service"
	if !k.synchronised {
		return bad(Warn, name, "the kernel says that the wall clock is not synchronised",
			"start one time service, such as chrony or systemd-timesyncd; leases do not depend on it, but times in histories and logs do")
	}
	return good(name, "synchronised, error at most %s, rate corrected by %+.1f ppm", brief(k.maxError), k.ppm)
}

// longSuspend is the time in suspension from which a machine counts as one that suspends.
const longSuspend = time.Second

// judgeSuspended judges how long the machine was suspended since it booted.
func judgeSuspended(d time.Duration, server bool) Check {
	const name = "suspension"
	switch {
	case d < longSuspend:
		return good(name, "not suspended since it booted")
	case server:
		return bad(Warn, name, "suspended for "+brief(d)+" since it booted", "a suspended member serves no request: turn off suspension, and pauses of the virtual machine, on machines that run servers")
	}
	return good(name, "suspended for %s since it booted; leases end in time all the same", brief(d))
}

// judgeDomain judges whether processes of this machine can tell that they share its clocks. shifted reports whether a time
// namespace shifts them.
func judgeDomain(d clock.Domain, shifted bool) Check {
	const name = "clock domain"
	switch {
	case d == clock.UnknownDomain:
		return bad(Warn, name, "unknown: processes here cannot tell that they share the machine's clocks",
			"show this process the boot id and its own time namespace in /proc; until then a claim after a crash on this machine waits as if the holder were on another machine")
	case shifted:
		return good(name, "a time namespace of its own, which shifts the clocks")
	}
	return good(name, "known: all processes of this boot share it")
}
