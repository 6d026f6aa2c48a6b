package masterlease

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A released promise does not keep the gate closed after the hold-off that follows a start.
func TestReleasedPromiseDoesNotDelayTheGate(t *testing.T) {
	g, err := NewGrantor(GrantorConfig{}, Past{Longest: 2 * time.Second}, clock.Instant{})
	if err != nil {
		t.Fatal(err)
	}
	now := clock.Instant{}.Add(1900 * time.Millisecond)
	r := Request{Term: 5, Epoch: 1, Stamp: now, Duration: time.Second}
	if got := g.Hear(Heard{From: 1, Term: 5, Request: r}, State{Term: 5, Leader: 1}, now); got != Promised {
		t.Fatal(got)
	}
	if opens, _ := g.Opens(now); !opens.After(g.holdOff) {
		t.Fatalf("the promise ends at %v, before the hold-off after the start", opens)
	}
	g.Release(Release{1, 5, 1})
	if opens, closed := g.Opens(now); !closed || opens != g.holdOff {
		t.Errorf("the gate opens at %v (%v), want %v", opens, closed, g.holdOff)
	}
}

// A member may be handing over when it is first observed as leader. It then leads like any other, and has
// nothing to release.
func TestLeadershipMayBeginWithAHandover(t *testing.T) {
	h, err := NewHolder(HolderConfig{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r, gave := h.Observe(State{Term: 6, Leader: 1, Role: Leader, Transferee: 2}, clock.Instant{}); gave {
		t.Errorf("released %+v before it had anything", r)
	}
	if r, is := h.Released(); !is || r != (Release{1, 6, 1}) {
		t.Errorf("the order to campaign carries %+v, %v", r, is)
	}
}

// A stall counts once, when the leader notices it, and only while the member leads.
func TestStallCountsOnce(t *testing.T) {
	p := newPair(t)
	hanging := Progress{Last: 9, Synced: 1, Committed: 1}
	for range 3 {
		p.leader.Progress(hanging, p.now())
		p.clocks.Advance(time.Minute)
	}
	if n := p.leader.Stats(p.now()).Stalls; n != 1 {
		t.Errorf("one stall counts as %d", n)
	}
	p.leader.Observe(State{Term: 6, Leader: 2}, p.now())
	p.leader.Progress(Progress{Last: 9, Synced: 9, Committed: 9}, p.now())
	for range 3 {
		p.leader.Progress(hanging, p.now())
		p.clocks.Advance(time.Minute)
	}
	if n := p.leader.Stats(p.now()).Stalls; n != 1 {
		t.Errorf("with the stalls of a follower, %d are counted", n)
	}
}

// The leader measures the lag of its disk from the time of each commit, even while the disk still has an
// earlier entry to write.
func TestLagCountsFromEachCommit(t *testing.T) {
	p := newPair(t)
	limit := p.leader.config.LagLimit
	at := func(share float64, committed, synced uint64) bool {
		now := clock.Instant{}.Add(time.Duration(share * float64(limit)))
		p.leader.Progress(Progress{Last: 300, Committed: committed, Synced: synced}, now)
		return p.leader.stall.slow
	}
	for _, step := range []struct {
		share             float64
		committed, synced uint64
		slow              bool
	}{
		{0, 100, 50, false}, {0.45, 200, 50, false}, {0.85, 200, 150, false}, {1.2, 200, 150, false}, {1.5, 200, 150, true},
	} {
		if got := at(step.share, step.committed, step.synced); got != step.slow {
			t.Errorf("at %v of the limit, slow = %v", step.share, got)
		}
	}
}

// If this member's clock did not move, the deviation is zero.
func TestDeviationIsZeroWithoutElapsedTime(t *testing.T) {
	for _, peer := range []int64{-5, 0, 5} {
		if got := deviation(0, peer); got != 0 {
			t.Errorf("deviation(0, %d) = %d ppm", peer, got)
		}
	}
}
