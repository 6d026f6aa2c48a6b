package replica

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"go.etcd.io/raft/v3/raftpb"
)

// Each test here names guards of elections, and fails if exactly one of them is removed.

// campaigns returns how often a member campaigns while it hears nobody for a while.
func (g *team) campaigns(member uint64, d time.Duration) uint64 {
	g.cut = func(message.Message) bool { return true }
	w := g.members[member]
	before := w.replica.Counts().Campaigns
	for ; d > 0; d -= 5 * time.Millisecond {
		w.clock.Advance(5 * time.Millisecond)
		w.step(Tick{})
		w.settle()
	}
	return w.replica.Counts().Campaigns - before
}

// A follower that hears no leader campaigns, unless it must not: it has left, waits for the leader that it handed over
// to, or has no state because another member's is being installed.
func TestOnlyAFollowerThatMayCampaignDoes(t *testing.T) {
	for what, set := range map[string]func(r *Replica){
		"":              func(*Replica) {},
		"left":          func(r *Replica) { r.left = true },
		"is handing":    func(r *Replica) { r.handing = new(handing) },
		"is installing": func(r *Replica) { r.installing = true },
	} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		r := g.members[g.follower(leader)].replica
		before := r.Counts().Campaigns
		r.campaignAt = r.now
		r.now = r.now.Add(10 * time.Second) // what it promised has ended by then
		set(r)
		if r.elect(); (r.Counts().Campaigns > before) != (what == "") {
			t.Errorf("a member that %q campaigned %d times", what, r.Counts().Campaigns-before)
		}
		r.left, r.handing, r.installing = false, nil, false
	}
}

// A leader does not campaign.
func TestLeaderDoesNotCampaign(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	before := g.members[leader].replica.Counts().Campaigns
	g.pass(5 * time.Second)
	if n := g.members[leader].replica.Counts().Campaigns - before; n != 0 {
		t.Errorf("it campaigned %d times", n)
	}
}

// A member that has left gives no vote to a candidate that asks then.
func TestMemberThatLeftGivesNoVote(t *testing.T) {
	for _, left := range []bool{false, true} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		candidate := g.follower(leader)
		voter := 6 - leader - candidate
		w := g.members[voter]
		w.replica.left = true // it does not campaign meanwhile
		g.campaigns(voter, 3*time.Second)
		w.replica.left = left
		g.sent = nil
		g.askForVote(candidate, voter, raftpb.MsgPreVote, w.replica.term+1)
		if answered := len(g.sent) > 0; answered == left {
			t.Errorf("a member that has left (%v): answered is %v", left, answered)
		}
	}
}

// A leader whose authority has ended is voted down like any other.
func TestLeaderWithoutAuthorityIsVotedDown(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[g.elected()]
	g.pass(time.Second)
	if !w.replica.leads() {
		t.Fatal("a leader with authority may be voted down")
	}
	w.clock.Advance(2 * time.Second)
	w.replica.now = w.clock.Now()
	if w.replica.leads() {
		t.Error("a leader without authority may not")
	}
}

// A member that will not campaign is not woken to do so.
func TestNobodyIsWokenForACampaignThatMustNotBe(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(3 * time.Second)
	for what, set := range map[string]func(r *Replica){
		"has left":           func(r *Replica) { r.left = true },
		"is new":             func(r *Replica) { r.fresh = new(fresh) },
		"is handing over":    func(r *Replica) { r.handing = new(handing) },
		"installs a state":   func(r *Replica) { r.installing = true },
		"leads":              func(r *Replica) { r.leading = true },
		"may campaign still": nil,
	} {
		r := g.members[g.follower(leader)].replica
		left, fresh, handing, installing, leading, at := r.left, r.fresh, r.handing, r.installing, r.leading, r.campaignAt
		now := r.now
		r.now = now.Add(10 * time.Second) // what it promised has ended by then
		r.campaignAt, r.ticked = now, r.now
		if set != nil {
			set(r)
		}
		if wait := r.untilVote(); (wait > 0) != (set != nil) {
			t.Errorf("a member that %s is woken after %v", what, wait)
		}
		r.left, r.fresh, r.handing, r.installing, r.leading, r.campaignAt, r.now = left, fresh, handing, installing, leading, at, now
	}
}

// Only the member that is to take over makes a leave futile by being unreachable.
func TestOtherUnreachableMembersDoNotEndALeave(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	r := g.members[leader].replica
	r.handing, r.transferee = &handing{leaving: true}, g.follower(leader)
	if r.onUnreachable(6 - leader - r.transferee); r.handing.futile {
		t.Error("another member is unreachable, and the leave is futile")
	}
	if r.onUnreachable(r.transferee); !r.handing.futile {
		t.Error("nobody can take over, and the leave is not futile")
	}
	r.handing, r.transferee = nil, 0
}

// One hand-over at a time, whether the member that takes over is still known or raft has given it up.
func TestSecondHandOverIsRefused(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	w := g.members[leader]
	for what, set := range map[string]func(r *Replica){
		"an order":   func(r *Replica) { r.handing = &handing{id: 1} },
		"a transfer": func(r *Replica) { r.transferee = g.follower(leader) },
	} {
		effects := w.emitted(func(r *Replica) {
			set(r)
			r.onHandOver(HandOver{ID: 2, To: g.follower(leader)})
			r.handing, r.transferee = nil, 0
		})
		if got := errorsOf(effects, 2); len(got) != 1 || got[0] != ErrTooManyRequests {
			t.Errorf("with %s under way: %v", what, got)
		}
	}
}

// A leader hands over to a member that is there, and to one in its hold-off rather than to nobody.
func TestLeadershipGoesToAMemberThatIsThere(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	r := g.members[leader].replica
	first := g.follower(leader)
	second := 6 - leader - first
	g.down[first] = true
	g.pass(3 * time.Second)
	if got := r.furthest(); got != second {
		t.Errorf("member %d takes over and not %d", got, second)
	}
	r.holdOffs.Hear(second, time.Second, r.now)
	if got := r.furthest(); got != second {
		t.Errorf("with everybody else in hold-off member %d takes over and not %d", got, second)
	}
}

// A follower that knows no leader has nobody to wait for when it leaves.
func TestFollowerWithoutALeaderLeavesAtOnce(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	member := g.follower(leader)
	w := g.members[member]
	w.replica.handing = &handing{} // it does not campaign, and forgets its leader
	w.replica.leader = 0
	effects := w.emitted(func(r *Replica) {
		r.handing = nil
		r.onLeave(Leave{ID: 1})
		r.settleHandOver()
	})
	if got := errorsOf(effects, 1); len(got) != 1 || got[0] != nil || !w.replica.left {
		t.Errorf("answered by %v", got)
	}
}
