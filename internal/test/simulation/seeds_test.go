package simulation

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run the world of this seed alone")
	seeds   = flag.Int("seeds", 0, "how many worlds to run; 0 runs worlds for some seconds")
)

// explain reports the broken invariant of a world, and the command that repeats it.
func explain(t *testing.T, test string, r Result) {
	t.Helper()
	t.Errorf("seed %d: after %v, this is broken: %s\n%s\n%s\nlast events:\n%s\nrepeat it with: go test ./internal/test/simulation -run '%s' -seed=%d",
		r.Seed, r.Failure.At, r.Failure.Invariant, r.Failure.Facts, r.About, strings.Join(r.Last, "\n"), test, r.Seed)
}

// batch runs the worlds of the usual seeds, or of those that the flags choose, and returns their outcomes.
func batch(t *testing.T, usual int, options Options) (all []Result) {
	first, last := uint64(1), uint64(usual)
	switch {
	case *oneSeed > 0:
		first, last = *oneSeed, *oneSeed
	case *seeds > 0:
		last = uint64(*seeds)
	}
	events, led := 0, 0.0
	for seed := first; seed <= last; seed++ {
		r := Run(seed, options)
		if r.Failure != nil {
			explain(t, "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", r)
			return nil
		}
		events, led = events+r.Events, led+r.Led
		r.Last = nil
		all = append(all, r)
	}
	n := last - first + 1
	t.Logf("%d worlds, %d events, a leader with authority for %.0f %% of the time", n, events, 100*led/float64(n))
	return all
}

// A server that is alone keeps the same invariants.
func TestSingleMemberKeepsTheInvariants(t *testing.T) {
	batch(t, 1+usualSeeds/10, Options{Members: 1, Length: usualLength})
}

func TestSameSeedGivesTheSameRun(t *testing.T) {
	short := Options{Length: time.Second}
	var before uint64
	for seed := uint64(1); seed <= 1+usualSeeds/15; seed++ {
		one, other := Run(seed, short), Run(seed, short)
		if one.Trace != other.Trace || one.Events != other.Events {
			t.Errorf("seed %d: %d events with sum %x, and again %d with sum %x", seed, one.Events, one.Trace, other.Events, other.Trace)
		}
		if one.Trace == before {
			t.Errorf("seed %d gives the same run as the one before it", seed)
		}
		before = one.Trace
	}
}
