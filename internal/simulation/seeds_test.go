package simulation

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	oneSeed = flag.Uint64("seed", 0, "run the world of this seed alone")
	seeds   = flag.Int("seeds", 0, "how many worlds to run; 0 means as many as take some seconds")
)

// explain says what broke in a world, and how to see it again.
func explain(t *testing.T, test string, r Result) {
	t.Helper()
	t.Errorf("seed %d: after %v, this does not hold: %s\n%s\n%s\nwhat happened last:\n%s\nrun it again with: go test ./internal/simulation -run '%s' -seed=%d",
		r.Seed, r.Failure.At, r.Failure.Invariant, r.Failure.Facts, r.About, strings.Join(r.Last, "\n"), test, r.Seed)
}

// batch runs the worlds of some seeds, at least, or of the one that was asked for, and returns what was seen in them.
func batch(t *testing.T, usual int, options Options) (seen []string) {
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
		seen = append(seen, r.Marks...)
	}
	n := last - first + 1
	t.Logf("%d worlds, %d events, a leader with authority for %.0f %% of the time", n, events, 100*led/float64(n))
	slices.Sort(seen)
	return slices.Compact(seen)
}

// wanted are the marks that a batch must see. What it does not see, it does not test.
var wanted = []string{
	"a claim stands in line",
	"a claim was refused",
	"a follower answered a read",
	"a leader answered a follower's read from its lease",
	"a leader answered a read",
	"a leader ended right after it had acknowledged something",
	"a leader handed over",
	"a leader lost the follower that it had, while that restarted",
	"a leader told how long a lease has left",
	"a leader went on in another epoch",
	"a lease expired",
	"a state was shipped of which history had been compacted",
	"history was compacted",
	"history was read",
	"a lease expired after something had been wrong",
	"a machine was suspended",
	"a member started with a shorter master lease than before",
	"a member took its leave",
	"a message came very late",
	"a name went from one to another",
	"a put was acknowledged",
	"a release was told to everybody",
	"a release went with a request for a vote",
	"a renewal was acknowledged",
	"a renewal was acknowledged by way of a follower",
	"a renewal was forwarded",
	"a renewal was under way when the leader changed",
	"a request for a vote had to wait for a promise to end",
	"a round of messages confirmed answers",
	"a state was installed",
	"a state was shipped",
	"all members restarted",
	"an answer was held back because its authority had ended",
	"an order to hand over failed",
	"an outcome was unknown",
	"halted by its disk",
	"paused between deciding and answering",
	"the leader changed",
}

// Groups of three and five, with everything that a seed draws, and with what is rare there happening all the time.
func TestSeeds(t *testing.T) {
	var seen []string
	for _, stress := range []Stress{"drawn", Orders, Clocks, Disks, Starts, Turns} {
		n := usualSeeds
		if stress != "drawn" {
			n = 1 + usualSeeds/8
		}
		t.Run(string(stress), func(t *testing.T) { seen = append(seen, batch(t, n, Options{Stress: stress, Length: usualLength})...) })
	}
	if t.Failed() || *oneSeed > 0 || *seeds > 0 && *seeds < enoughForMarks || usualSeeds < enoughForMarks {
		return
	}
	for _, mark := range wanted {
		if !slices.Contains(seen, mark) {
			t.Errorf("in no world %s", mark)
		}
	}
}

// A member alone has nobody to ask and keeps the same promises.
func TestAlone(t *testing.T) { batch(t, 1+usualSeeds/10, Options{Members: 1, Length: usualLength}) }

// The same seed gives the same run, to the last message.
func TestSameSeedSameRun(t *testing.T) {
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
