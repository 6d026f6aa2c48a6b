package simulation

import (
	"slices"
	"testing"
)

// wanted are the marks that a batch of worlds must see: an event that never happens is not tested. needs reports whether a
// swarm can show the mark; nil means that every swarm can.
var wanted = []struct {
	mark  string
	needs func(s *swarm) bool
}{
	{"a claim waited in the queue", nil},
	{"a claim with a priority acquired a name", ranks},
	{"a claim was refused", nil},
	{"a compare did not hold", nil},
	{"a compare held", nil},
	{"a follower answered a read", nil},
	{"a guarded write of a former holder was refused", nil},
	{"a guarded write was acknowledged", nil},
	{"a holder announced a card", nil},
	{"a leader answered a follower's read from its lease", nil},
	{"a leader answered a read", nil},
	{"a leader ended right after an acknowledgement", func(s *swarm) bool { return s.sudden > 0 }},
	{"a leader handed over", has(order)},
	{"a leader handed over because another member was better off", has(stall)},
	{"a leader lost its last follower while that restarted", has(lonely)},
	{"a leader reported the remaining time of a lease", nil},
	{"a leader continued in another epoch", func(s *swarm) bool { return s.faults[order] >= 1 }},
	{"a lease expired", nil},
	{"a lease expired under another leader than the one that renewed it last", nil},
	{"a lease was over during a later time without a leader", has(leaderLosses)},
	{"a lease outlived the silence and the first time without a leader", has(leaderLosses)},
	{"a machine was suspended", has(suspend)},
	{"a member started with a shorter master lease than before", func(s *swarm) bool { return s.otherLengths }},
	{"a member stopped cleanly", has(cleanStop)},
	{"a message arrived very late", func(s *swarm) bool { return s.late > 0 || s.lateOrders > 0 && s.faults[order] > 0 }},
	{"a name was held on", finishes},
	{"a name was pinned", nil},
	{"a name was transferred", nil},
	{"a name got another holder", nil},
	{"a pin outlived its leader", pins},
	{"a put was acknowledged", nil},
	{"a release was sent to all members", nil},
	{"a release went with a request for a vote", has(order, cleanStop)},
	{"a renewal was acknowledged", nil},
	{"a renewal was acknowledged through a follower", nil},
	{"a renewal was forwarded", nil},
	{"a renewal was under way when the leader changed", nil},
	{"a request for a vote had to wait for a promise to end", nil},
	{"a round of messages confirmed answers", nil},
	{"a state was installed", losesTouch},
	{"a state was shipped", losesTouch},
	{"a state was shipped of which history had been compacted", losesTouch},
	{"a transfer of a pinned name was refused", pins},
	{"a tenure was finished", finishes},
	{"a request was refused because the policy had changed", users},
	{"a right was withdrawn", users},
	{"a user with a right that comes and goes wrote", users},
	{"a user without a right was refused", users},
	{"a waiting claim was preferred", ranks},
	{"all members restarted", has(everyone)},
	{"an answer was held back because its authority had ended", nil},
	{"an order to hand over failed", has(order)},
	{"an outcome was unknown", nil},
	{"halted by its disk", has(diskLoss)},
	{"history was compacted", nil},
	{"history was read", nil},
	{"paused between deciding and answering", func(s *swarm) bool { return s.stumble > 0 || s.hesitate > 0 }},
	{"the audit log has acknowledged changes", users},
	{"the leader changed", nil},
}

// has demands a fault of one of these kinds.
func has(kinds ...int) func(s *swarm) bool {
	return func(s *swarm) bool {
		return slices.ContainsFunc(kinds, func(kind int) bool { return s.faults[kind] > 0 })
	}
}

// pins demands clients that often pin names.
func pins(s *swarm) bool { return s.tenants > 0 }

// ranks demands claims with priorities.
func ranks(s *swarm) bool { return s.ranks > 0 }

// users demands access that is enabled.
func users(s *swarm) bool { return s.users > 0 }

// finishes demands clients that finish tenures.
func finishes(s *swarm) bool { return s.finishers > 0 }

// losesTouch demands members that are away for longer than the others keep their logs.
func losesTouch(s *swarm) bool {
	return s.logKeep < keptLog && has(isolation, deafness, division, powerCut, kill, suspend, diskLoss, everyone, lonely)(s)
}

// enoughWorlds is how many worlds that can show a mark suffice to demand it.
const enoughWorlds = 10

// checkMarks checks that the worlds have seen the wanted marks. If whole is set, the worlds are of all kinds and must have
// seen every mark. Otherwise they must have seen those that enough of them can show.
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
			t.Errorf("no world shows %q, and %d could", want.mark, able)
		}
	}
}

// Clusters of three and five keep all invariants, with the faults that seeds draw and under each kind of stress.
func TestSeeds(t *testing.T) {
	kinds := []Stress{"drawn", Orders, Clocks, Disks, Starts, Turns, Names, Ranks, Users, Lapses, Changes, Few}
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
