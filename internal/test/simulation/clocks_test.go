package simulation

import (
	"strings"
	"testing"
	"time"
)

// needsClocks are parts of the names of invariants that rest on clocks within the bound.
var needsClocks = []string{"(I1)", "(I2)", "(I3", "(I10)", "undercut", "reported as gone", "held once", "overstays", "whole time"}

// The clocks of this test are wrong by much more than the drift bound. Then invariants that rest on clocks break, which shows
// that the world checks them. No other invariant breaks: members keep promises by their own clocks, logs match, and
// acknowledged changes stay.
func TestBrokenClocks(t *testing.T) {
	exclusive := 0
	for seed := uint64(1); seed <= 2+3*usualSeeds; seed++ {
		r := Run(seed, Options{Rates: 600_000, Eager: 1, Length: 5 * time.Second, Idle: seed%4 > 0})
		if r.Failure == nil {
			continue
		}
		rests := false
		for _, part := range needsClocks {
			rests = rests || strings.Contains(r.Failure.Invariant, part)
		}
		if !rests {
			explain(t, "^TestBrokenClocks$", r)
			return
		}
		if strings.Contains(r.Failure.Invariant, "(I1)") || strings.Contains(r.Failure.Invariant, "(I2)") {
			exclusive++
		}
	}
	if exclusive == 0 && usualSeeds >= enoughForMarks {
		t.Error("clocks are far beyond the bound, and two leaders never have authority at once: the check finds nothing")
	}
	t.Logf("in %d worlds two leaders had authority", exclusive)
}

// A clock runs at its rate, and never backward.
func TestOscillatorFollowsItsRate(t *testing.T) {
	o := oscillator{base: 1000, rate: 100_000}
	if got := o.read(int64(time.Second)); got != 1000+int64(1100*time.Millisecond) {
		t.Errorf("a clock that is ten per cent fast shows %d after a second", got)
	}
	o.setRate(int64(time.Second), standstill)
	if got := o.read(int64(time.Minute)); got != 1000+int64(1100*time.Millisecond) {
		t.Errorf("a clock that stands still shows %d", got)
	}
	o.setRate(int64(time.Minute), -100_000)
	if got := o.read(int64(time.Minute + time.Second)); got != 1000+int64(2000*time.Millisecond) {
		t.Errorf("a clock that goes on ten per cent slow shows %d", got)
	}
}

func TestAgendaIsOrderedByTimeAndThenByInsertion(t *testing.T) {
	var a agenda
	var got []int
	for i, at := range []int64{5, 1, 3, 1, 5, 2, 3} {
		a.push(at, func() { got = append(got, i) })
	}
	for a.len() > 0 {
		a.pop().do()
	}
	want := []int{1, 3, 5, 2, 6, 0, 4}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("happened in the order %v, not %v", got, want)
		}
	}
}
