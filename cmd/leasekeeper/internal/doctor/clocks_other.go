//go:build !linux

package doctor

import "github.com/leasekeeper/leasekeeper/clock"

// checkClockSystem returns the checks of clocks that only Linux has as not checked.
func checkClockSystem(bool) []Check {
	const why = "only Linux tells"
	checks := []Check{skipped("clock source", why), skipped("time service", why), skipped("suspension", why)}
	if clock.SystemDomain() == clock.UnknownDomain {
		return append(checks, skipped("clock domain", "this system names no boot: a claim after a crash waits as if the holder were on another machine"))
	}
	return append(checks, judgeDomain(clock.SystemDomain(), false))
}
