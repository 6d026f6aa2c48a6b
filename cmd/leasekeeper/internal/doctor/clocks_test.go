package doctor

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

func TestRatesCompareDifferencesOfReadings(t *testing.T) {
	second := int64(time.Second)
	from := clockReading{raw: 5 * second, boot: 7 * second, wall: 99 * second, span: 1000}
	to := clockReading{raw: 7 * second, boot: 9*second + 2000, wall: 101*second - 2000, span: 3000}
	r, known := ratesOf(from, to)
	if !known || r.elapsed != 2*time.Second {
		t.Errorf("%+v", r)
	}
	if math.Abs(r.boot-1) > 1e-9 || math.Abs(r.wall+2) > 1e-5 || math.Abs(r.bound-2) > 1e-9 {
		t.Errorf("boot %v, wall %v, bound %v", r.boot, r.wall, r.bound)
	}
	for _, to := range []clockReading{{raw: from.raw, boot: to.boot}, {raw: to.raw, boot: from.boot}} {
		if _, known := ratesOf(from, to); known {
			t.Errorf("a clock stands still: %+v", to)
		}
	}
}

func TestClockRateIsJudgedByItsBounds(t *testing.T) {
	const drift = clock.Drift(10_000)
	for _, c := range []struct {
		ppm, bound float64
		want       Verdict
	}{
		{0, 1, OK}, {500, 0, OK}, {501, 1, OK}, {501.5, 1, Warn}, {-501.5, 1, Warn}, {10_000, 0, Warn}, {10_001, 1, Warn}, {10_002, 1, Fail}, {-10_002, 1, Fail},
		{0, 10_000, OK}, {0, 10_001, NotChecked},
	} {
		expect(t, fmt.Sprint(c), judgeRate(clockRates{boot: c.ppm, bound: c.bound}, true, drift), c.want)
	}
	expect(t, "a clock that stands still", judgeRate(clockRates{}, false, drift), Fail)
}

func TestWallClockIsJudgedByItsBound(t *testing.T) {
	for _, c := range []struct {
		ppm  float64
		want Verdict
	}{{0, OK}, {501, OK}, {-501, OK}, {501.5, Warn}, {-501.5, Warn}} {
		expect(t, fmt.Sprint(c), judgeWall(clockRates{wall: c.ppm, bound: 1}, true), c.want)
	}
	expect(t, "unknown", judgeWall(clockRates{}, false), NotChecked)
}

func TestClockSourceIsJudged(t *testing.T) {
	expect(t, "tsc", judgeSource("tsc", nil), OK)
	expect(t, "kvm-clock", judgeSource("kvm-clock", []string{"tsc"}), OK)
	expect(t, "acpi_pm", judgeSource("acpi_pm", []string{"acpi_pm"}), Warn)
	hpet := judgeSource("hpet", []string{"tsc", "hpet"})
	expect(t, "hpet", hpet, Warn)
	if want := judgeSource("hpet", []string{"hpet"}); hpet.Fix == want.Fix {
		t.Error("the advice does not depend on the sources that the kernel offers")
	}
}

func TestTimeServiceAndSuspensionAreJudged(t *testing.T) {
	expect(t, "synchronised", judgeKernelClock(kernelClock{synchronised: true}), OK)
	expect(t, "not synchronised", judgeKernelClock(kernelClock{}), Warn)
	expect(t, "short", judgeSuspended(time.Second-1, true), OK)
	expect(t, "a server", judgeSuspended(time.Second, true), Warn)
	expect(t, "no server", judgeSuspended(time.Hour, false), OK)
}

func TestClockDomainIsJudged(t *testing.T) {
	expect(t, "unknown", judgeDomain(clock.UnknownDomain, false), Warn)
	expect(t, "known", judgeDomain("linux/x/", false), OK)
	expect(t, "shifted", judgeDomain("linux/x/", true), OK)
}

func TestClocksOfThisMachineAreMeasured(t *testing.T) {
	step := clockStep()
	from := readClocks(step)
	to := readClocks(step)
	for to.raw == from.raw {
		to = readClocks(step)
	}
	if step <= 0 || from.span < step || to.raw < from.raw || to.boot < from.boot {
		t.Errorf("step %d, from %+v to %+v", step, from, to)
	}
}
