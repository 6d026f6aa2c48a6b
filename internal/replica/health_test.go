package replica

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// ready reports whether a member counts as ready now.
func (g *team) ready(id uint64) bool {
	w := g.members[id]
	return !w.clock.Now().After(w.replica.Ready())
}

// readyAfter lets time pass, and checks who is ready then.
func (g *team) readyAfter(d time.Duration, want ...uint64) {
	g.t.Helper()
	g.pass(d)
	ready := make(map[uint64]bool)
	for _, id := range want {
		ready[id] = true
	}
	for _, id := range g.ids {
		if got := g.ready(id); got != ready[id] {
			g.t.Errorf("after %v more, member %d is ready: %v", d, id, got)
		}
	}
}

const untilUnready = readyFor*DefaultElectionTimeout + DefaultElectionTimeout/probes + TickInterval

// Members of a healthy cluster are ready without a single client.
func TestMembersOfAHealthyClusterAreReady(t *testing.T) {
	g := newTeam(t, 3)
	g.readyAfter(0)
	g.elected()
	g.readyAfter(time.Second, g.ids...)
	g.readyAfter(10*time.Second, g.ids...)
}

// A follower that hears the leader and cannot reach it is not ready, and is again once it can.
func TestMemberThatOnlyHearsTheLeaderIsNotReady(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	follower, other := g.follower(leader), uint64(0)
	for _, id := range g.ids {
		if id != leader && id != follower {
			other = id
		}
	}
	g.readyAfter(time.Second, g.ids...)
	g.cut = func(m Message) bool { return m.From == follower }
	g.readyAfter(untilUnready, leader, other)
	if known, _ := g.members[follower].replica.Leader(); known != leader {
		t.Fatalf("the follower knows %d as leader, not %d: it was to hear it", known, leader)
	}
	g.cut = func(Message) bool { return false }
	g.readyAfter(time.Second, g.ids...)
}

// Reads alone make no member ready: renewals have to work through it as well.
func TestMemberThatCannotRenewIsNotReady(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	follower := g.follower(leader)
	g.readyAfter(time.Second, g.ids...)
	g.cut = func(m Message) bool { return m.From == follower && len(m.Renewals) > 0 }
	g.readyAfter(untilUnready, slices.DeleteFunc(slices.Clone(g.ids), func(id uint64) bool { return id == follower })...)
}

// A member that has left is not ready any longer, however lately requests worked through it.
func TestMemberThatLeftIsNotReady(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.readyAfter(2*time.Second, g.ids...)
	g.step(leader, Leave{ID: 77})
	g.readyAfter(2*TickInterval, g.butFor(leader)...)
}

// A member whose data directory was emptied hears the leader, which refuses its requests. It is never ready.
func TestMemberWithAnEmptiedDirectoryIsNotReady(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.readyAfter(time.Second, g.ids...)
	g.members[leader].close()
	g.members[leader] = newWorldOf(t, func(w *world) {
		w.clock = g.members[leader].clock
		w.configure = func(c *Config) { c.MemberID, c.Incarnation, c.Members = leader, 0xbad, g.ids }
	})
	g.pass(5 * time.Second)
	next := g.elected()
	if next == leader {
		t.Fatal("the emptied member leads")
	}
	for range 100 {
		g.pass(100 * time.Millisecond)
		if g.ready(leader) {
			t.Fatal("the emptied member is ready")
		}
	}
	if known, _ := g.members[leader].replica.Leader(); known != next {
		t.Fatalf("the emptied member knows %d as leader, not %d: it was to hear it", known, next)
	}
}

// A leader that cannot reach the others is not ready for long. An ordinary election makes no member unready.
func TestElectionWithdrawsNoReadiness(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.readyAfter(time.Second, g.ids...)
	g.cut = func(m Message) bool { return m.From == leader || m.To == leader }
	var others []uint64
	for _, id := range g.ids {
		if id != leader {
			others = append(others, id)
		}
	}
	for range 40 {
		g.pass(50 * time.Millisecond)
		for _, id := range others {
			if !g.ready(id) {
				t.Fatalf("member %d is not ready while another leader is elected", id)
			}
		}
	}
	g.readyAfter(masterLeaseAndAnswers, others...)
}

// masterLeaseAndAnswers is how long a leader that was cut off is ready at the most, less two seconds: it answers from its
// lease at first.
const masterLeaseAndAnswers = 2 * time.Second

// A member that lacks space is ready: reads and renewals work through it.
func TestMemberWithoutSpaceIsReady(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.Space = SpaceLimits{MinFree: 100} })
	leader := g.elected()
	for _, id := range g.ids {
		g.step(id, Space{Free: 1})
	}
	g.readyAfter(5*time.Second, g.ids...)
	if g.members[leader].replica.Shortage() != DiskFull {
		t.Error("the leader has space after all")
	}
}

// A member that is alone is ready while it serves.
func TestSingleMemberIsReadyWhileItServes(t *testing.T) {
	g := newTeam(t, 1)
	g.elected()
	g.readyAfter(10*time.Second, g.ids...)
}

// A renewal that reaches a leader before it serves is answered when it does, and need not be sent again.
func TestRenewalWaitsUntilTheLeaderServes(t *testing.T) {
	g := newTeam(t, 3)
	g.cut = func(m Message) bool { return m.Raft != nil && m.Raft.GetType() == raftpb.MsgAppResp } // nothing is committed
	leader := uint64(0)
	for i := 0; leader == 0; i++ {
		if i == 1000 {
			t.Fatal("no leader is elected")
		}
		g.pass(5 * time.Millisecond)
		for _, id := range g.ids {
			if g.members[id].replica.leading {
				leader = id
			}
		}
	}
	follower := g.follower(leader)
	g.step(follower, Renewal{ID: 9, Leases: []lessor.ID{7}})
	if g.members[leader].replica.serving || g.replyTo(follower, 9) != nil {
		t.Fatalf("the leader serves already, or has answered: %+v", g.replyTo(follower, 9))
	}
	sent := 0
	g.cut = func(m Message) bool {
		for _, renewal := range m.Renewals {
			if slices.Contains(renewal.Leases, 7) {
				sent++
			}
		}
		return false
	}
	for i := 0; g.replyTo(follower, 9) == nil; i++ {
		if i == 1000 {
			t.Fatal("the renewal is not answered")
		}
		g.pass(5 * time.Millisecond)
	}
	if answer, ok := g.replyTo(follower, 9).(Renewed); !ok || answer.Leases[0].Err != lessor.ErrNotFound || sent > 0 {
		t.Errorf("the renewal was sent %d times more, and answered %+v", sent, g.replyTo(follower, 9))
	}
}
