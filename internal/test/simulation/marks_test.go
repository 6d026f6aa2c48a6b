package simulation

import (
	"slices"
	"testing"
)

// wanted are the marks that worlds must have. What they do not see, they do not test. Some need something that not every
// world has in it.
var wanted = []struct {
	mark  string
	needs func(s *swarm) bool
}{
	{"a claim stands in line", nil},
	{"a claim was refused", nil},
	{"a compare did not hold", nil},
	{"a compare held", nil},
	{"a follower answered a read", nil},
	{"a guarded write of a former holder was refused", nil},
	{"a guarded write was acknowledged", nil},
	{"a holder announced something", nil},
	{"a leader answered a follower's read from its lease", nil},
	{"a leader answered a read", nil},
	{"a leader ended right after it had acknowledged something", func(s *swarm) bool { return s.sudden > 0 }},
	{"a leader handed over", has(order)},
	{"a leader handed over because another member was better off", has(stall)},
	{"a leader lost the follower that it had, while that restarted", has(lonely)},
	{"a leader told how long a lease has left", nil},
	{"a leader went on in another epoch", func(s *swarm) bool { return s.faults[order] >= 1 }},
	{"a lease expired", nil},
	{"a lease expired under another leader than the one that heard of it last", nil},
	{"a lease was over when there was no leader, and not for the first time", has(lapses)},
	{"a lease outlived the silence and the first time without a leader", has(lapses)},
	{"a machine was suspended", has(suspend)},
	{"a member started with a shorter master lease than before", func(s *swarm) bool { return s.otherLengths }},
	{"a member took its leave", has(cleanStop)},
	{"a message came very late", func(s *swarm) bool { return s.late > 0 || s.lateOrders > 0 && s.faults[order] > 0 }},
	{"a name was pinned", nil},
	{"a name was transferred", nil},
	{"a name went from one to another", nil},
	{"a pin outlived its leader", pins},
	{"a put was acknowledged", nil},
	{"a release was told to everybody", nil},
	{"a release went with a request for a vote", has(order, cleanStop)},
	{"a renewal was acknowledged", nil},
	{"a renewal was acknowledged by way of a follower", nil},
	{"a renewal was forwarded", nil},
	{"a renewal was under way when the leader changed", nil},
	{"a request for a vote had to wait for a promise to end", nil},
	{"a round of messages confirmed answers", nil},
	{"a state was installed", losesTouch},
	{"a state was shipped", losesTouch},
	{"a state was shipped of which history had been compacted", losesTouch},
	{"a transfer of a pinned name was refused", pins},
	{"all members restarted", has(everyone)},
	{"an answer was held back because its authority had ended", nil},
	{"an order to hand over failed", has(order)},
	{"an outcome was unknown", nil},
	{"halted by its disk", has(diskLoss)},
	{"history was compacted", nil},
	{"history was read", nil},
	{"paused between deciding and answering", func(s *swarm) bool { return s.stumble > 0 || s.hesitate > 0 }},
	{"the leader changed", nil},
}

// has says that a world must have a fault of one of these kinds.
func has(kinds ...int) func(s *swarm) bool {
	return func(s *swarm) bool {
		return slices.ContainsFunc(kinds, func(kind int) bool { return s.faults[kind] > 0 })
	}
}

// pins says that there must be many of them.
func pins(s *swarm) bool { return s.tenants > 0 }

// losesTouch says that members must be away for longer than the logs of others reach back.
func losesTouch(s *swarm) bool {
	return s.logKeep < keptLog && has(isolation, deafness, division, powerCut, kill, suspend, diskLoss, everyone, lonely)(s)
}

// enoughWorlds is how many worlds must have a mark among them if all have what it needs.
const enoughWorlds = 10

// checkMarks checks that some worlds have seen what they should. All kinds of worlds together must have seen all of it;
// some kinds alone only what many of their worlds can see.
func checkMarks(t *testing.T, worlds []Result, whole bool) {
	t.Helper()
	for _, want := range wanted {
		able, seen := 0, 0
		for _, r := range worlds {
			if want.needs == nil || want.needs(&r.swarm) {
				able++
			}
			if slices.Contains(r.Marks, want.mark) {
				seen++
			}
		}
		t.Logf("%d of %d: %s", seen, able, want.mark)
		if seen == 0 && (whole || able >= enoughWorlds) {
			t.Errorf("in no world %s, and in %d it could be", want.mark, able)
		}
	}
}

// Groups of three and five, with everything that a seed draws, and with what is rare there happening all the time.
func TestSeeds(t *testing.T) {
	kinds := []Stress{"drawn", Orders, Clocks, Disks, Starts, Turns, Names, Lapses}
	var worlds []Result
	ran := 0
	for _, stress := range kinds {
		n := usualSeeds
		if stress != "drawn" {
			n = max(1, usualSeeds/8)
		}
		t.Run(string(stress), func(t *testing.T) {
			ran++
			worlds = append(worlds, batch(t, n, Options{Stress: stress, Length: usualLength})...)
		})
	}
	if t.Failed() || *oneSeed > 0 || *seeds > 0 && *seeds < enoughForMarks || len(worlds) < enoughForMarks {
		return
	}
	checkMarks(t, worlds, ran == len(kinds))
}
