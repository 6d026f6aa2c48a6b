package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
)

// Each test here names guards of a leader that compares itself with others, and of what space allows. It fails if exactly
// one of them is removed.

// A leader without space hands over to a member with room: one hand-over at a time, and none too soon after the last.
func TestFullLeaderHandsOverOnce(t *testing.T) {
	for what, set := range map[string]func(r *Replica){
		"":                                    func(*Replica) {},
		"a hand-over is under way":            func(r *Replica) { r.handing = new(handing) },
		"raft transfers the leadership":       func(r *Replica) { r.transferee = 1 },
		"the last hand-over was a moment ago": func(r *Replica) { r.yielding.rest = r.now.Add(time.Second) },
		"the other's room is of long ago": func(r *Replica) {
			for id, said := range r.yielding.reports {
				said.at = r.now.Add(-time.Hour)
				r.yielding.reports[id] = said
			}
		},
		"the other says nothing of its room": func(r *Replica) {
			for id, said := range r.yielding.reports {
				said.space = memberpb.Room_ROOM_UNKNOWN
				r.yielding.reports[id] = said
			}
		},
	} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		r := g.members[leader].replica
		r.space.Limits = SpaceLimits{MinFree: 1000}
		r.space.See(intake.SpaceReading{Free: 1})
		r.yielding.short, r.yielding.since, r.yielding.reports = true, r.now.Add(-time.Minute), nil
		r.hearSpace(g.follower(leader), memberpb.Room_ROOM_ENOUGH)
		set(r)
		before := r.counts.Yields
		r.considerYield()
		if yields := r.counts.Yields != before; yields != (what == "") {
			t.Errorf("while %q: it hands over is %v", what, yields)
		}
		r.handing, r.transferee = nil, 0
	}
}

// slowLeader returns a leader whose oldest write of the log is of that age, and was quick at another member.
func slowLeader(g *team, age time.Duration, quick ...uint64) *Replica {
	r := g.members[g.elected()].replica
	r.persisting = []persisting{{sequence: 1, entries: []*raftpb.Entry{{Index: new(r.log.Last())}}, since: r.now.Add(-age), compared: true, quick: quick}}
	return r
}

// A write is compared with those of others once, early. Slow writes count when others were quick, and some in a row, or one
// very slow write, are enough.
func TestSlowWritesCountWhereOthersAreQuick(t *testing.T) {
	g := newTeam(t, 3)
	g.elected()
	g.pass(time.Second)
	timeout := g.members[1].replica.cfg.ElectionTimeout
	r := slowLeader(g, timeout/quickPart)
	if r.fasterMembers(); len(r.persisting[0].quick) != 0 {
		t.Error("a write was compared again")
	}
	r = slowLeader(g, timeout/slowPart)
	if r.fasterMembers(); r.yielding.slow != 0 {
		t.Error("a write counts as slow that nobody had sooner")
	}
	r = slowLeader(g, timeout/verySlowPart, 7)
	if got := r.fasterMembers(); !slices.Equal(got, []uint64{7}) {
		t.Errorf("beside a very slow write stand %v", got)
	}
	for _, pause := range []time.Duration{timeout / 2, 2 * slowMemory * timeout} {
		r = slowLeader(g, timeout/slowPart, 7)
		r.yielding.slow, r.yielding.struck, r.yielding.at = slowWrites-1, 99, r.now.Add(-pause)
		if got := r.fasterMembers(); (len(got) > 0) != (pause < slowMemory*timeout) {
			t.Errorf("%v after the slow writes before it, beside one stand %v", pause, got)
		}
		if again := r.yielding.slow; r.fasterMembers() != nil && r.yielding.slow != again {
			t.Error("one write counts twice")
		}
	}
	r.persisting = nil
}

// A leader is woken when it is time to compare its oldest write.
func TestComparisonComesInTime(t *testing.T) {
	g := newTeam(t, 3)
	timeout := g.members[1].replica.cfg.ElectionTimeout
	r := slowLeader(g, timeout/quickPart-time.Millisecond)
	if r.persisting[0].compared = false; r.untilWriteIsSlow() != time.Millisecond {
		t.Errorf("it is woken after %v", r.untilWriteIsSlow())
	}
	r.persisting = nil
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

// A member has room if it knows that it has, and not only just.
func TestRoomIsKnownAndAmple(t *testing.T) {
	for what, c := range map[string]struct {
		limits SpaceLimits
		seen   Space
		want   memberpb.Room
	}{
		"no limits":             {SpaceLimits{}, Space{Free: 1 << 40}, memberpb.Room_ROOM_UNKNOWN},
		"space of no known end": {SpaceLimits{MinFree: 1000}, Space{Free: UnknownFree}, memberpb.Room_ROOM_UNKNOWN},
		"ample space":           {SpaceLimits{MinFree: 1000}, Space{Free: 5000, Used: 5000}, memberpb.Room_ROOM_ENOUGH},
		"little space":          {SpaceLimits{MinFree: 1000}, Space{Free: 1001}, memberpb.Room_ROOM_UNKNOWN},
		"no space":              {SpaceLimits{MinFree: 1000}, Space{Free: 1}, memberpb.Room_ROOM_SHORT},
		"much of a quota":       {SpaceLimits{Quota: 1600}, Space{Free: UnknownFree, Used: 1550}, memberpb.Room_ROOM_UNKNOWN},
		"little of a quota":     {SpaceLimits{Quota: 1600}, Space{Free: UnknownFree, Used: 100}, memberpb.Room_ROOM_ENOUGH},
	} {
		r := &Replica{space: intake.SpaceGauge{Limits: c.limits, Seen: intake.SpaceReading{Free: UnknownFree}}}
		r.space.See(intake.SpaceReading(c.seen))
		if got := r.ownSpace(); got != c.want {
			t.Errorf("with %s: %v", what, got)
		}
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
