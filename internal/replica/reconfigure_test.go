package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// join starts a member with an empty data directory that joins under an id.
func (g *team) join(id uint64) { g.joinWith(id, 0x100+id) }

// joinWith is join with the incarnation of the data directory. A member that has one already loses it.
func (g *team) joinWith(id, incarnation uint64) {
	like := g.members[g.ids[0]]
	w := newWorldOf(g.t, func(w *world) {
		w.clock = clock.NewManual(clock.Instant{Raw: int64(id) * int64(time.Hour), Boot: int64(id) * int64(time.Minute)})
		w.domain, w.sync, w.logKeep = like.domain, like.sync, like.logKeep
		w.configure = func(c *Config) {
			like.configure(c)
			c.MemberID, c.Incarnation, c.Members, c.Joins = id, incarnation, nil, true
		}
	})
	if emptied := g.members[id]; emptied != nil {
		emptied.close()
	}
	g.members[id] = w
	if !slices.Contains(g.ids, id) {
		g.ids = append(g.ids, id)
	}
	g.step(id, Tick{})
}

// change has the leader change the members, and requires that it succeeds.
func (g *team) change(kind roster.Kind, m roster.Member) Members {
	g.t.Helper()
	reply := g.tryChange(kind, m)
	if reply.Err != nil {
		g.t.Fatalf("%v of %x: %v", kind, m.ID, reply.Err)
	}
	return reply.Result.(Members)
}

func (g *team) tryChange(kind roster.Kind, m roster.Member) Reply {
	g.t.Helper()
	leader := g.elected()
	g.requests++
	id := 1<<40 + g.requests
	g.step(leader, ChangeMembers{ID: id, Change: roster.Change{Kind: kind, Member: m}})
	g.pass(5 * time.Millisecond)
	reply, ok := g.replyTo(leader, id).(Reply)
	if !ok {
		g.t.Fatalf("%v of %x has no answer", kind, m.ID)
	}
	return reply
}

// grow adds a member, lets it catch up and promotes it.
func (g *team) grow(id uint64) {
	g.t.Helper()
	g.change(roster.Add, roster.Member{ID: id, Learner: true})
	g.join(id)
	g.pass(10 * TickInterval)
	g.change(roster.Promote, roster.Member{ID: id})
}

// shrink removes a member, which halts when it hears of that.
func (g *team) shrink(id uint64) {
	g.t.Helper()
	g.members[id].mayHalt = true
	g.change(roster.Remove, roster.Member{ID: id})
	g.pass(30 * TickInterval)
	var removed *RemovedError
	if !errors.As(g.members[id].halted, &removed) {
		g.t.Fatalf("member %d was removed, and goes on: %v", id, g.members[id].halted)
	}
	g.members[id].close()
	g.ids = slices.DeleteFunc(g.ids, func(other uint64) bool { return other == id })
	delete(g.members, id)
}

func TestClusterGrowsAndShrinks(t *testing.T) {
	g := newTeam(t, 1)
	g.do(g.elected(), 1, put1("k", "1"))
	for _, id := range []uint64{2, 3, 4, 5} {
		g.grow(id)
		g.do(g.elected(), 10+id, put1("k", "2"))
		g.same()
	}
	if voters := g.members[g.elected()].replica.voters; !slices.Equal(voters, []uint64{1, 2, 3, 4, 5}) {
		t.Fatalf("voters %x", voters)
	}
	for range 4 {
		leader := g.elected()
		g.shrink(leader)
		g.do(g.elected(), 20, put1("k", "3"))
		g.same()
	}
	if r := g.members[g.elected()].replica; !r.alone() {
		t.Fatalf("the last member has voters %x", r.voters)
	}
}

// changeAndVanish has the leader change the members, and vanish as it answers.
func (g *team) changeAndVanish(kind roster.Kind, m roster.Member) {
	g.t.Helper()
	leader := g.elected()
	g.vanishAt = 1 << 41
	g.step(leader, ChangeMembers{ID: g.vanishAt, Change: roster.Change{Kind: kind, Member: m}})
	if reply, ok := g.replyTo(leader, g.vanishAt).(Reply); !ok || reply.Err != nil || !g.down[leader] {
		g.t.Fatalf("%v of %x: %+v", kind, m.ID, reply)
	}
}

// Once a change of the voters is answered, the new members can lose any minority, also the leader that answered: a majority
// of them knows the change.
func TestMembersElectAfterTheLeaderVanishesAtItsAnswer(t *testing.T) {
	t.Run("promotion in a cluster of two", func(t *testing.T) {
		g := newTeam(t, 2)
		g.elected()
		g.change(roster.Add, roster.Member{ID: 3, Learner: true})
		g.join(3)
		g.pass(10 * TickInterval)
		g.changeAndVanish(roster.Promote, roster.Member{ID: 3})
		g.do(g.elected(), 1, put1("k", "1"))
	})
	t.Run("removal from a cluster of four", func(t *testing.T) {
		g := newTeam(t, 4)
		leader := g.elected()
		removed := g.follower(leader)
		g.members[removed].mayHalt = true
		g.changeAndVanish(roster.Remove, roster.Member{ID: removed})
		g.down[removed] = true
		g.do(g.elected(), 1, put1("k", "1"))
	})
}

// A change whose leader stops leading before a majority knows it has an unknown outcome.
func TestChangeThatNoMajorityKnowsHasAnUnknownOutcome(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.change(roster.Add, roster.Member{ID: 4, Learner: true})
	g.join(4)
	g.pass(10 * TickInterval)
	const id = 1 << 41
	g.cut = func(m Message) bool {
		return m.From == leader && len(g.members[leader].replica.voters) == 4
	}
	g.step(leader, ChangeMembers{ID: id, Change: roster.Change{Kind: roster.Promote, Member: roster.Member{ID: 4}}})
	if reply := g.replyTo(leader, id); reply != nil {
		t.Fatalf("answered before anyone else knows the change: %+v", reply)
	}
	if err := g.members[leader].replica.reconfigure(0, roster.Change{Kind: roster.Describe, Member: roster.Member{ID: 4, Name: "d"}}, access.Caller{}); !errors.Is(err, ErrChanging) {
		t.Errorf("another change before a majority knows this one: %v", err)
	}
	g.pass(5 * time.Second)
	if reply, ok := g.replyTo(leader, id).(Reply); !ok || !errors.Is(reply.Err, ErrUnknownOutcome) {
		t.Errorf("%+v", reply)
	}
	g.cut = func(Message) bool { return false }
	g.do(g.elected(), 1, put1("k", "1"))
	if voters := g.members[g.elected()].replica.voters; len(voters) != 4 {
		t.Errorf("voters %x", voters)
	}
}

// bindingTeam returns a team whose leader notes the data directory of a new member, and cannot commit that.
func bindingTeam(t *testing.T) (g *team, leader uint64, r *Replica) {
	g = newTeam(t, 3)
	leader = g.elected()
	r = g.members[leader].replica
	g.change(roster.Add, roster.Member{ID: 4, Learner: true})
	g.cut = func(m Message) bool { return m.To == leader && m.From != 4 }
	g.join(4)
	for i := 0; i < 200 && r.changing == nil; i++ {
		g.pass(5 * time.Millisecond)
	}
	if r.changing == nil || r.changing.id != 0 {
		t.Fatalf("the leader makes no change by itself: %+v", r.changing)
	}
	return g, leader, r
}

var (
	rename     = roster.Change{Kind: roster.Describe, Member: roster.Member{ID: 4, Name: "d"}}
	moveMember = roster.Change{Kind: roster.Update, Member: roster.Member{ID: 4, PeerURLs: []string{"http://127.0.0.1:4"}}}
)

// A change waits while the leader makes one by itself. A further change is refused meanwhile, and so is a description, which
// the server repeats.
func TestChangeWaitsForTheLeadersOwn(t *testing.T) {
	g, leader, _ := bindingTeam(t)
	const described, first, second = 1 << 41, 1<<41 + 1, 1<<41 + 2
	g.step(leader, ChangeMembers{ID: described, Change: rename})
	g.step(leader, ChangeMembers{ID: first, Change: moveMember})
	g.step(leader, ChangeMembers{ID: second, Change: moveMember})
	for _, refused := range []uint64{described, second} {
		if reply, ok := g.replyTo(leader, refused).(Reply); !ok || !errors.Is(reply.Err, ErrChanging) {
			t.Errorf("change %d: %+v", refused, reply)
		}
	}
	g.wantDelayed(leader, first)
}

// A change waits while the server completes the list of members, and while another client's change is made.
func TestChangeWaitsForAnother(t *testing.T) {
	for _, other := range []roster.Change{rename, moveMember} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.change(roster.Add, roster.Member{ID: 4, Learner: true})
		g.join(4)
		g.pass(10 * TickInterval)
		g.cut = func(m Message) bool { return m.To == leader }
		const first, second = 1 << 41, 1<<41 + 1
		g.step(leader, ChangeMembers{ID: first, Change: other})
		g.step(leader, ChangeMembers{ID: second, Change: moveMember})
		g.wantDelayed(leader, second)
		if reply, ok := g.replyTo(leader, first).(Reply); !ok || reply.Err != nil {
			t.Errorf("%v before it: %+v", other, reply)
		}
	}
}

// wantDelayed requires that a change waits until the members hear each other again, and is then made.
func (g *team) wantDelayed(leader, id uint64) {
	g.t.Helper()
	if reply := g.replyTo(leader, id); reply != nil {
		g.t.Errorf("answered while another change is under way: %+v", reply)
	}
	g.cut = func(Message) bool { return false }
	g.pass(2 * TickInterval)
	if reply, ok := g.replyTo(leader, id).(Reply); !ok || reply.Err != nil {
		g.t.Errorf("after the other change: %+v", reply)
	}
}

// A change that waits for another one is refused when it has waited for too long, or the leader stops leading.
func TestChangeDoesNotWaitForever(t *testing.T) {
	const id = 1 << 41
	for _, late := range []bool{true, false} {
		g, leader, r := bindingTeam(t)
		g.step(leader, ChangeMembers{ID: id, Change: moveMember})
		if late {
			r.delayed.until = r.now
			g.pass(TickInterval)
		} else {
			g.cut = func(m Message) bool { return m.From == leader }
			g.pass(5 * time.Second)
		}
		reply, ok := g.replyTo(leader, id).(Reply)
		if !ok || errors.Is(reply.Err, ErrChanging) != late || reply.Err == nil || errors.Is(reply.Err, ErrUnknownOutcome) {
			t.Errorf("late %v: %+v", late, reply)
		}
	}
}

// A member that is alone again after others had a vote waits after a restart, like a member of several.
func TestMemberThatIsAloneAgainHoldsOffVotes(t *testing.T) {
	g := newTeam(t, 1)
	g.elected()
	g.grow(2)
	leader := g.elected()
	g.shrink(g.follower(leader))
	if r := g.members[leader].replica; !r.alone() {
		t.Fatal("it is not alone")
	}
	g.crash(leader, 0)
	if g.step(leader, Tick{}); g.members[leader].replica.Serving() {
		t.Error("it leads without waiting")
	}
	g.pass(2 * time.Second)
	g.elected()
}

// A sole voter that has just been elected tells a learner no index before an entry of its own term is committed.
func TestSoleVoterAnswersNoLearnerBeforeItsFirstEntry(t *testing.T) {
	g := newTeam(t, 1)
	leader := g.elected()
	g.change(roster.Add, roster.Member{ID: 2, Learner: true})
	r := g.members[leader].replica
	m := &raftpb.Message{
		Type: raftpb.MsgReadIndex.Enum(), From: new(uint64(2)), To: new(leader), Entries: []*raftpb.Entry{{Data: []byte("question")}},
	}
	r.serving = false
	if r.mayStep(Received{Message: Message{From: 2, To: leader, Raft: m}}) {
		t.Error("raft would answer")
	}
	r.serving = true
}
