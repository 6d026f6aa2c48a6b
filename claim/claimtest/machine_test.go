package claimtest_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// stretch is some time in which both clocks of a machine run evenly.
type stretch struct {
	from      time.Duration // in real time, since the world began
	at        clock.Instant // what the clocks show then
	raw, boot float64       // their rates
}

// machine has the two clocks of one domain. They are functions of the bubble's time, which counts as real time
// here.
type machine struct {
	domain    clock.Domain
	began     time.Time // the start of the world
	stretches []stretch
}

// temper is the error of a machine's clocks. One of the two is always within the bound.
type temper int

const (
	steady   temper = iota
	suspends        // the raw clock stands still now and then
	slewed          // the boot clock is wrong by up to a tenth
	both            // not allowed for a machine
	tempers  = 3    // the number of allowed tempers
)

// newMachine returns clocks that are computed for this length. drift bounds the error of the good one.
func newMachine(r *rand.Rand, d clock.Domain, began time.Time, length time.Duration, drift clock.Drift, what temper) *machine {
	const thousand = 1000 * time.Second
	offset := func() int64 { return r.Int64N(int64(2*thousand)) - int64(thousand) }
	m := &machine{domain: d, began: began}
	at := clock.Instant{Raw: offset(), Boot: offset()}
	rho := float64(drift) / 1e6
	for from := time.Duration(0); from < length; {
		s := stretch{from: from, at: at, raw: 1 + rho*(2*r.Float64()-1), boot: 1 + rho*(2*r.Float64()-1)}
		switch {
		case what == suspends && r.IntN(3) == 0:
			s.raw = 0
		case what == slewed:
			s.boot = 0.9 + 0.2*r.Float64()
		case what == both:
			s.raw, s.boot = float64(r.IntN(2)), 0.6+0.4*r.Float64()
		}
		m.stretches = append(m.stretches, s)
		from += time.Second + time.Duration(r.Int64N(int64(40*time.Second)))
		at = s.read(from)
	}
	return m
}

func (s *stretch) read(real time.Duration) clock.Instant {
	since := float64(real - s.from)
	return clock.Instant{Raw: s.at.Raw + int64(since*s.raw), Boot: s.at.Boot + int64(since*s.boot)}
}

// Now returns what both clocks show.
func (m *machine) Now() clock.Instant {
	real := time.Since(m.began)
	last := len(m.stretches) - 1
	for m.stretches[last].from > real {
		last--
	}
	return m.stretches[last].read(real)
}

// Moved returns nil: these clocks never jump.
func (m *machine) Moved() <-chan struct{} { return nil }

// The clocks of machines never go back, and over any time one of them is within the bound.
func TestMachineClocksNeverGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const drift = 20_000
		var all []*machine
		for i := range 3 * tempers {
			all = append(all, newMachine(random(uint64(i)), "x", time.Now(), time.Hour, drift, temper(i%tempers)))
		}
		wrong := make(map[temper]int) // how often one of the two clocks was beyond the bound
		for range 1000 {
			before := make([]clock.Instant, len(all))
			for i, m := range all {
				before[i] = m.Now()
			}
			time.Sleep(3 * time.Second)
			within := func(elapsed int64) bool {
				off := time.Duration(elapsed) - 3*time.Second
				return off.Abs() <= 3*time.Second*drift/1e6+2
			}
			for i, m := range all {
				raw, boot := m.Now().Raw-before[i].Raw, m.Now().Boot-before[i].Boot
				if raw < 0 || boot < 0 || !within(raw) && !within(boot) {
					t.Fatalf("in 3s a machine of temper %d counted %v and %v", i%tempers, time.Duration(raw), time.Duration(boot))
				}
				if !within(raw) || !within(boot) {
					wrong[temper(i%tempers)]++
				}
			}
		}
		if wrong[steady] > 0 || wrong[suspends] < 100 || wrong[slewed] < 1000 {
			t.Errorf("how often a clock was wrong: %v", wrong)
		}
	})
}
