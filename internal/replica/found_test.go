package replica

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
)

// wipe replaces a member's data directory by an empty one.
func (g *team) wipe(id uint64) {
	before := g.members[id]
	after := &world{
		t: g.t, fs: vfs.NewCrashableMem(), clock: clock.NewManual(before.clock.Now()), domain: before.domain, sync: before.sync,
		configure: func(c *Config) { before.configure(c); c.Incarnation += 0x1000 },
	}
	after.start()
	before.close()
	g.members[id] = after
}

// unfounded returns a cluster whose members have not heard of each other.
func unfounded(t *testing.T, size int) *team {
	g := newTeam(t, size)
	for _, id := range g.ids {
		g.wipe(id)
	}
	return g
}

func (g *team) nobodyServes(d time.Duration) {
	g.t.Helper()
	for ; d > 0; d -= 50 * time.Millisecond {
		g.pass(50 * time.Millisecond)
		for _, id := range g.ids {
			if r := g.members[id].replica; !g.down[id] && (r.leading || r.Serving()) {
				g.t.Fatalf("member %d leads", id)
			}
		}
	}
}

// A cluster is founded only when all its members are up.
func TestClusterIsFoundedWhenAllMembersAreUp(t *testing.T) {
	g := unfounded(t, 3)
	g.down[3] = true
	g.nobodyServes(5 * time.Second)
	if why := g.members[1].replica.Awaits(); !strings.Contains(why, "member 3 does not answer") || strings.Contains(why, "member 2") {
		t.Errorf("member 1 waits because %s", why)
	}
	delete(g.down, 3)
	g.elected()
	g.same()
	for _, id := range g.ids {
		g.crash(id, 0) // a member that has joined is a member after a restart
		if g.members[id].replica.fresh != nil {
			t.Errorf("member %d is new again", id)
		}
	}
}

// Two of three members with emptied directories found nothing, with the third and without it.
func TestMajorityOfEmptiedDirectoriesFoundsNothing(t *testing.T) {
	for _, third := range []bool{true, false} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.do(leader, 1, put1("k", "acknowledged"))
		g.pass(time.Second)
		var wiped []uint64
		for _, id := range g.ids {
			if id != leader {
				g.wipe(id)
				wiped = append(wiped, id)
			}
		}
		g.members[leader].mayHalt = true
		g.crash(leader, 0)
		g.down[leader] = !third
		g.nobodyServes(10 * time.Second)
		for _, id := range wiped {
			r := g.members[id].replica
			if r.fresh == nil || r.hasData() {
				t.Errorf("member %d belongs to a cluster", id)
			}
			if third && !strings.Contains(r.Awaits(), "has data, and knows another data directory") {
				t.Errorf("member %d waits because %s", id, r.Awaits())
			}
			if third {
				if reply := g.order(id, 5, Found{ID: 5}); !errors.Is(reply.Err, ErrFounding) {
					t.Errorf("member %d founds a cluster nevertheless: %v", id, reply.Err)
				}
			}
		}
	}
}

// A directory that is emptied before the cluster is founded may be replaced by another one.
func TestDirectoryMayChangeBeforeTheClusterIsFounded(t *testing.T) {
	g := unfounded(t, 3)
	g.down[3] = true
	g.pass(time.Second)
	g.wipe(2)
	g.pass(time.Second)
	delete(g.down, 3)
	g.elected()
}

// The standing that a member sent with a former directory does not count for its present one.
func TestAgreementOfAFormerDirectoryDoesNotCount(t *testing.T) {
	g := unfounded(t, 3)
	g.down[3] = true
	g.pass(time.Second)
	g.wipe(2)
	heard := 0
	g.cut = func(m Message) bool { // member 1 hears of the new directory once, and the new member never hears of member 1
		if m.From == 2 && m.To == 1 {
			heard++
		}
		return m.From == 1 && m.To == 2 || m.From == 2 && m.To == 1 && heard > 1
	}
	delete(g.down, 3)
	g.pass(2 * time.Second)
	if r := g.members[1].replica; r.fresh == nil || r.peers[2] != g.members[2].replica.Incarnation() {
		t.Errorf("member 1 belongs to a cluster, and member 2 has never heard of it; it knows %x as 2", r.peers[2])
	}
	g.cut = func(Message) bool { return false }
	g.elected()
}

// A new member that has data keeps to the directories that it knows: with emptied ones it founds nothing.
func TestNewMemberWithDataFoundsNothingWithEmptiedDirectories(t *testing.T) {
	g := unfounded(t, 3)
	g.down[3] = true
	g.pass(time.Second)
	if reply := g.order(1, 1, Found{ID: 1}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	leader := g.elected()
	other := 3 - leader
	heard := 0
	g.cut = func(m Message) bool { // the third member hears of the other one once, and not that this one agrees
		if m.From == other && m.To == 3 {
			heard++
		}
		return m.From == other && m.To == 3 && heard > 1
	}
	delete(g.down, 3)
	g.do(leader, 2, put1("k", "acknowledged"))
	g.pass(2 * time.Second)
	if r := g.members[3].replica; r.fresh == nil || !r.hasData() || len(r.peers) != 2 {
		t.Fatalf("the third member is not new, has nothing, or knows only %x", r.peers)
	}
	g.wipe(leader)
	g.wipe(other)
	g.cut = func(Message) bool { return false }
	g.nobodyServes(10 * time.Second)
	if r := g.members[3].replica; r.counts.RejectedPeers == 0 {
		t.Error("the third member rejects no peer")
	}
}

// By order a majority founds a cluster without a missing member, which joins it later. The order works once, and only while
// no member has data.
func TestClusterIsFoundedWithoutAMemberByOrder(t *testing.T) {
	g := unfounded(t, 3)
	g.down[3] = true
	if reply := g.order(1, 1, Found{ID: 1}); !errors.Is(reply.Err, ErrFounding) {
		t.Errorf("before it has heard of anybody: %v", reply.Err)
	}
	g.pass(time.Second)
	for i, s := range []message.Standing{{Known: 0xbad}, {Data: true}} { // what the third said before it went away
		g.members[1].replica.fresh.Stands[3] = s
		if reply := g.order(1, 10+uint64(i), Found{ID: 10 + uint64(i)}); !errors.Is(reply.Err, ErrFounding) {
			t.Errorf("with a third member that says %+v: %v", s, reply.Err)
		}
	}
	delete(g.members[1].replica.fresh.Stands, 3)
	if reply := g.order(1, 2, Found{ID: 2}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	leader := g.elected()
	if reply := g.order(1, 3, Found{ID: 3}); !errors.Is(reply.Err, ErrFounding) {
		t.Errorf("a second time: %v", reply.Err)
	}
	g.do(leader, 4, put1("k", "v"))
	g.pass(time.Second)
	delete(g.down, 3)
	g.pass(2 * time.Second)
	g.same()
	if g.members[3].replica.fresh != nil {
		t.Errorf("the third is still new: %s", g.members[3].replica.Awaits())
	}
	g.wipe(3)
	g.members[3].mayHalt = true
	g.pass(2 * time.Second)
	if r := g.members[3].replica; r.fresh == nil {
		t.Error("an emptied directory takes the place of the third")
	}
}

// A new member neither votes nor campaigns, no matter which member asks and what it is ordered.
func TestNewMemberHasNoVote(t *testing.T) {
	g := unfounded(t, 3)
	g.down[3] = true
	g.pass(5 * time.Second) // its vote hold-off is over, and it is acquainted with one of the others
	r := g.members[1].replica
	for _, kind := range []raftpb.MessageType{raftpb.MsgPreVote, raftpb.MsgVote, raftpb.MsgTimeoutNow} {
		m := &raftpb.Message{
			Type: kind.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(7)), Index: new(uint64(5)), LogTerm: new(uint64(6)),
		}
		g.sent = nil
		g.step(1, Received{Message: Message{From: 2, To: 1, Raft: m}, Incarnation: g.members[2].replica.Incarnation()})
		g.pass(time.Second)
		for _, sent := range g.sent {
			if sent.From == 1 && sent.Raft != nil {
				t.Errorf("%v: it sends %v", kind, sent.Raft)
			}
		}
	}
	if status := r.raft.BasicStatus(); status.HardState.GetVote() != 0 || r.counts.Campaigns != 0 {
		t.Errorf("it voted for %d, and campaigned %d times", status.HardState.GetVote(), r.counts.Campaigns)
	}
}
