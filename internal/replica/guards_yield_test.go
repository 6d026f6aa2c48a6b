package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
)

// Each test here names guards of a leader that compares itself with others, and of what space allows. It fails if exactly
// one of them is removed.

// A leader without space hands over to a member with room: one hand-over at a time, and none too soon after the last.
func TestFullLeaderHandsOverOnce(t *testing.T) {
	for what, set := range map[string]func(r *Replica){
		"":                                    func(*Replica) {},
		"a hand-over is under way":            func(r *Replica) { r.handing = new(handing) },
		"raft transfers the leadership":       func(r *Replica) { r.transferee = 1 },
		"the last hand-over was a moment ago": func(r *Replica) { r.yielding.TookOver(r.now) },
	} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		r := g.members[leader].replica
		r.space.Limits = SpaceLimits{MinFree: 1000}
		r.space.See(intake.SpaceReading{Free: 1})
		r.yielding = yield.New(r.cfg.ElectionTimeout, TickInterval)
		r.yielding.Roomier(r.now.Add(-time.Minute), DiskFull, nil)
		r.yielding.Hear(r.now, g.follower(leader), memberpb.Room_ROOM_ENOUGH)
		set(r)
		before := r.counts.Yields
		r.considerYield()
		if yields := r.counts.Yields != before; yields != (what == "") {
			t.Errorf("while %q: it hands over is %v", what, yields)
		}
		r.handing, r.transferee = nil, 0
	}
}

// Of other members those count that are there. The leadership goes to the one that has most of the log and may vote.
func TestOnlyMembersThatAreThereAreBetterOff(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	r := g.members[leader].replica
	others := g.butFor(leader)
	if got := r.have(r.log.Last()); !slices.Equal(got, others) {
		t.Errorf("%v have the newest entry", got)
	}
	if got := r.have(r.log.Last() + 1); len(got) != 0 {
		t.Errorf("%v have an entry that nobody has", got)
	}
	r.holdOffs.Hear(others[0], time.Second, r.now)
	if got := r.furthestOf(others); got != others[1] {
		t.Errorf("of %v with one in hold-off member %d takes over", others, got)
	}
	r.holdOffs.Hear(others[0], 0, r.now)
	g.cut = func(m message.Message) bool { return m.To == others[1] }
	g.mustPut(leader)
	if got := r.furthestOf(others); got != others[0] {
		t.Errorf("of %v the last of which lacks an entry member %d takes over", others, got)
	}
	g.cut = func(message.Message) bool { return false }
	g.pass(time.Second)
	g.down[others[0]] = true
	g.pass(3 * time.Second)
	if got := r.have(r.log.Last()); !slices.Equal(got, others[1:]) {
		t.Errorf("without one %v have the newest entry", got)
	}
	if got := r.furthestOf(others[:1]); got != 0 {
		t.Errorf("member %d takes over, which is not there", got)
	}
}

// A claim that is repeated while space is short gets its answer: it needs none.
func TestRepeatedClaimNeedsNoSpace(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{MinFree: 1000})
	for id := range uint64(2) {
		if r := w.do(id+1, claimOf(7, "n", false)); r.Err != nil {
			t.Errorf("claim %d: %v", id+1, r.Err)
		}
		w.step(Space{Free: 1})
	}
	if _, err := w.replica.Place("n", 99); !errors.Is(err, ownership.ErrLost) {
		t.Errorf("the place of a lease that does not wait: %v", err)
	}
}
