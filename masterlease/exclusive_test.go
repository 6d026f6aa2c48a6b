package masterlease

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// variant is a cluster that breaks one rule, so that its world must fail. The zero variant breaks none.
type variant struct {
	name string
	bend func(r *rules)

	noVoteGate     bool // members vote in spite of a promise
	noCampaignGate bool // members campaign in spite of a promise
	answersOld     bool // a member answers a message of an older term in that term
	oldConfig      bool // the holder does not receive new configurations
	wild           bool // clocks are outside the bound
	style          int  // of the worlds that show the mistake
}

func (v variant) ungated() bool { return v.noVoteGate || v.noCampaignGate }

// broken reports whether the variant breaks a rule.
func (v variant) broken() bool { return v.name != "" }

func (v variant) factor(w *world) float64 {
	if !v.wild {
		return 1
	}
	return []float64{0.5, 1, 2}[w.rng.IntN(3)]
}

const lifetime = 120 * time.Second

// No random world elects another leader while a leader has authority. This is the promise of the package.
func TestNoOtherLeaderIsElectedWhileAuthorityHolds(t *testing.T) {
	var all counts
	worlds := 60
	if testing.Short() {
		worlds = 20
	}
	for style := range styles {
		for seed := range uint64(worlds) {
			w := newWorld(seed, style, variant{})
			w.run(lifetime)
			if w.failure != "" {
				t.Fatalf("style %d, seed %d: %s", style, seed, w.failure)
			}
			add(&all, w.seen)
		}
	}
	t.Logf("%+v", all)
	if n := worlds; all.elections < 10*n || all.valid < 1000*n || all.restarts < 5*n || all.suspends < n || all.slews < n || all.aborts < n ||
		all.handovers < n || all.changes < n || all.covered < n || all.parked < 10*n || all.pauses < n {
		t.Errorf("too little happened in the worlds: %+v", all)
	}
}

func add(to *counts, c counts) {
	to.elections += c.elections
	to.valid += c.valid
	to.handovers += c.handovers
	to.aborts += c.aborts
	to.restarts += c.restarts
	to.suspends += c.suspends
	to.slews += c.slews
	to.pauses += c.pauses
	to.changes += c.changes
	to.parked += c.parked
	to.covered += c.covered
	to.stale += c.stale
	to.led += c.led
}

var variants = []variant{
	{name: "the promise does not allow for drift", bend: func(r *rules) {
		r.promiseLength = func(_ clock.Drift, d time.Duration) time.Duration { return d }
	}},
	{name: "counting does not allow for drift", style: clockwise, bend: func(r *rules) {
		r.countedLength = func(_ clock.Drift, d time.Duration) time.Duration { return d }
	}},
	{name: "the grantor uses the raw clock only", bend: func(r *rules) {
		r.stillBinds = func(now, until clock.Instant) bool { return now.Raw <= until.Raw }
	}},
	{name: "the grantor uses the boot clock only", bend: func(r *rules) {
		r.stillBinds = func(now, until clock.Instant) bool { return now.Boot <= until.Boot }
	}},
	{name: "the grantor is free once one clock is past the end", bend: func(r *rules) {
		r.stillBinds = func(now, until clock.Instant) bool { return now.Before(until) }
	}},
	{name: "the holder uses the raw clock only", style: clockwise, bend: func(r *rules) {
		r.isOver = func(now, end clock.Instant) bool { return now.Raw >= end.Raw }
	}},
	{name: "the holder uses the boot clock only", style: clockwise, bend: func(r *rules) {
		r.isOver = func(now, end clock.Instant) bool { return now.Boot >= end.Boot }
	}},
	{name: "a copy of a request extends the promise", bend: func(r *rules) {
		r.newer = func(stamp, last clock.Instant) bool { return !earlier(stamp, last) }
	}},
	{name: "an older request extends the promise", bend: func(r *rules) {
		r.newer = func(_, _ clock.Instant) bool { return true }
	}},
	{name: "grants count from their arrival", style: clockwise, bend: func(r *rules) {
		r.countedFrom = func(_, arrival clock.Instant) clock.Instant { return arrival }
	}},
	{name: "a member promises to any leader, in any role and term", answersOld: true, bend: func(r *rules) {
		r.fromOwnLeader = func(Heard, State) bool { return true }
	}},
	{name: "a release covers later epochs", bend: func(r *rules) {
		r.covers = func(_, _ uint64) bool { return true }
	}},
	{name: "grants of earlier epochs count", bend: func(r *rules) {
		r.sameEpoch = func(_, _ uint64) bool { return true }
	}},
	{name: "an aborted transfer starts no new epoch", bend: func(r *rules) {
		r.nextEpoch = func(epoch uint64) uint64 { return epoch }
	}},
	{name: "promises are made before they are recorded", bend: func(r *rules) {
		r.needsRecord = func(_, _ time.Duration) bool { return false }
	}},
	{name: "a member votes right after its start", bend: func(r *rules) {
		r.holdOff = func(time.Duration) time.Duration { return 0 }
	}},
	{name: "the hold-off after a start is too short", bend: func(r *rules) {
		r.holdOff = func(d time.Duration) time.Duration { return d / 2 }
	}},
	{name: "joint consensus needs one quorum", style: reforming, bend: func(r *rules) {
		r.voterSets = func(c Configuration) [2][]uint64 { return [2][]uint64{c.Voters} }
	}},
	{name: "learners count", style: reforming, bend: func(r *rules) {
		r.voterSets = func(c Configuration) [2][]uint64 {
			return [2][]uint64{distinct(append(append([]uint64(nil), c.Voters...), c.Learners...)), c.Outgoing}
		}
		r.quorum = func(voters int) int { return max(1, voters/2) }
	}},
	{name: "half is a quorum", bend: func(r *rules) {
		r.quorum = func(voters int) int { return max(1, voters/2) }
	}},
	{name: "authority is kept during a transfer", bend: func(r *rules) {
		r.withdraws = func(bool) bool { return false }
	}},
	{name: "authority before an entry of the own term", bend: func(r *rules) {
		r.usable = func(bool) bool { return true }
	}},
	{name: "members vote in spite of a promise", noVoteGate: true},
	{name: "members campaign in spite of a promise", noCampaignGate: true},
	{name: "the holder does not receive new configurations", style: reforming, oldConfig: true},
	{name: "clocks are outside the bound", wild: true},
}

// The random worlds notice every broken rule.
func TestMistakesAreNoticed(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			const worlds = 400
			for seed := range uint64(worlds) {
				w := newWorld(seed, v.style, v)
				w.run(lifetime)
				if w.failure != "" {
					t.Logf("seed %d: %s", seed, w.failure)
					return
				}
			}
			t.Errorf("%d worlds did not notice the mistake", worlds)
		})
	}
}
