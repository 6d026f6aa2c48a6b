package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

func TestClusterElectsAndReplicates(t *testing.T) {
	for _, size := range []int{2, 3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			g := newTeam(t, size)
			leader := g.elected()
			if reply := g.do(leader, 1, put1("k", "v")); reply.Err != nil {
				t.Fatal(reply.Err)
			}
			if reply := g.do(leader, 2, entry.Grant{Lease: 7, TTL: time.Minute}); reply.Err != nil {
				t.Fatal(reply.Err)
			}
			g.same()
			for _, id := range g.ids {
				if known, _ := g.members[id].replica.Leader(); known != leader {
					t.Errorf("member %d follows %d", id, known)
				}
			}
		})
	}
}

// Authoritative reads on the leader cost no messages, however many there are.
func TestLeaderReadsWithoutAMessage(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(3 * TickInterval)
	g.sent = nil
	for i := range uint64(100) {
		g.step(leader, Read{ID: 100 + i})
		if _, ok := g.replyTo(leader, 100+i).(ReadAt); !ok {
			t.Fatal("not answered at once")
		}
	}
	if len(g.sent) > 0 {
		t.Errorf("%d messages were sent", len(g.sent))
	}
}

// A follower's read costs one question to the leader and one answer, and none to the others.
func TestFollowerReadsWithOneQuestionToTheLeader(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(3 * TickInterval)
	g.do(leader, 1, put1("k", "v"))
	follower := g.follower(leader)
	g.sent = nil
	g.step(follower, Read{ID: 2}, Read{ID: 3})
	for _, id := range []uint64{2, 3} {
		read, ok := g.replyTo(follower, id).(ReadAt)
		if !ok || read.Header.Revision != 2 {
			t.Fatalf("read %d: %+v", id, g.replyTo(follower, id))
		}
	}
	if len(g.sent) != 2 || g.sent[0].Raft.GetType() != raftpb.MsgReadIndex || g.sent[1].Raft.GetType() != raftpb.MsgReadIndexResp {
		t.Errorf("sent: %v", g.sent)
	}
}

func TestFollowerForwardsRenewals(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	for id := range lessor.ID(3) {
		if reply := g.do(leader, uint64(id)+1, entry.Grant{Lease: 10 + id, TTL: time.Minute}); reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	g.pass(10 * time.Second)
	follower := g.follower(leader)
	g.sent = nil
	g.step(follower, Renewal{ID: 21, Leases: []lessor.ID{10, 99}}, Renewal{ID: 22, Leases: []lessor.ID{11}})
	first, _ := g.replyTo(follower, 21).(Renewed)
	second, _ := g.replyTo(follower, 22).(Renewed)
	if len(first.Leases) != 2 || first.Leases[0].TTL != time.Minute || !errors.Is(first.Leases[1].Err, lessor.ErrNotFound) ||
		len(second.Leases) != 1 || second.Leases[0].TTL != time.Minute {
		t.Errorf("renewed: %+v and %+v", first, second)
	}
	if len(g.sent) != 2 {
		t.Errorf("%d messages were sent for two renewals: %v", len(g.sent), g.sent)
	}
	if left, err := g.members[leader].replica.Lessor().Remaining(10, g.members[leader].clock.Now()); err != nil || left != time.Minute {
		t.Errorf("lease 10 has %v left, %v", left, err)
	}
}

func TestFollowerNamesTheLeaderToClients(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	follower := g.follower(leader)
	var elsewhere *NotLeaderError
	if reply := g.do(follower, 1, put1("k", "v")); !errors.As(reply.Err, &elsewhere) || elsewhere.Leader != leader {
		t.Errorf("put: %v", reply.Err)
	}
	g.step(follower, Inspection{ID: 2, Query: TimeToLive{Lease: 1}})
	if reply := g.replyTo(follower, 2).(Reply); !errors.Is(reply.Err, ErrNotLeader) {
		t.Errorf("inspection: %v", reply.Err)
	}
}

// An isolated leader answers nothing after its master lease has ended, and says so in time. The others elect another
// leader, and the old one follows it when it is back.
func TestIsolatedLeaderIsReplaced(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.do(old, 1, put1("k", "v"))
	g.cut = func(m Message) bool { return m.From == old || m.To == old }
	g.pass(2 * time.Second)
	leader := uint64(0)
	for _, id := range g.ids {
		if id != old && g.members[id].replica.Serving() {
			leader = id
		}
	}
	if leader == 0 {
		t.Fatal("no member took over")
	}
	g.step(old, Read{ID: 2})
	g.pass(2 * DefaultReadTimeout)
	if reply, ok := g.replyTo(old, 2).(Reply); !ok || reply.Err == nil {
		t.Errorf("the old leader answers %+v", g.replyTo(old, 2))
	}
	if reply := g.do(leader, 3, put1("k", "w")); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	g.cut = func(Message) bool { return false }
	g.pass(time.Second)
	if now, _ := g.members[old].replica.Leader(); now != leader {
		t.Errorf("the old leader follows %d and not %d", now, leader)
	}
	g.same()
}

// A leader whose master lease has lapsed confirms reads by one round of messages, which all waiting reads share.
func TestReadsAreConfirmedWhenTheMasterLeaseLapsed(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	w := g.members[leader]
	w.clock.Advance(2 * time.Second) // only the leader stood still
	g.sent = nil
	g.step(leader, Read{ID: 1}, Read{ID: 2})
	for _, id := range []uint64{1, 2} {
		if _, ok := g.replyTo(leader, id).(ReadAt); !ok {
			t.Errorf("read %d: %+v", id, g.replyTo(leader, id))
		}
	}
	beats := 0
	for _, m := range g.sent {
		if m.Raft.GetType() == raftpb.MsgHeartbeat && len(m.Raft.GetContext()) > 0 {
			beats++
		}
	}
	if beats != 2 {
		t.Errorf("%d messages for one round to two others", beats)
	}
}

// No request waits for a planned change of leaders.
func TestPlannedHandOverDelaysNoRequest(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.pass(time.Second)
	to := g.follower(old)
	if reply := g.order(old, 1, HandOver{ID: 1, To: to}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	if !g.members[to].replica.Serving() {
		t.Error("the other does not serve")
	}
	if reply := g.do(to, 2, put1("k", "v")); reply.Err != nil {
		t.Error(reply.Err)
	}
	if reply := g.order(old, 3, HandOver{ID: 3, To: to}); !errors.Is(reply.Err, ErrNotLeader) {
		t.Errorf("a follower hands over: %v", reply.Err)
	}
	if reply := g.order(to, 4, HandOver{ID: 4, To: 77}); !errors.Is(reply.Err, ErrNoMember) {
		t.Errorf("to an unknown peer: %v", reply.Err)
	}
}

// A leader that is ordered to hand over first learns the outcome of what it has proposed.
func TestHandOverWaitsForCommandsInFlight(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.pass(time.Second)
	to := g.follower(old)
	g.cut = func(m Message) bool { return m.From == old }
	g.step(old, Request{ID: 1, Command: put1("k", "v")})
	g.step(old, HandOver{ID: 2, To: to})
	g.step(old, Request{ID: 3, Command: put1("l", "v")})
	g.cut = func(Message) bool { return false }
	g.pass(300 * time.Millisecond)
	if reply, ok := g.replyTo(old, 1).(Reply); !ok || reply.Err != nil {
		t.Errorf("the write in flight: %+v", g.replyTo(old, 1))
	}
	if reply, ok := g.replyTo(old, 2).(Reply); !ok || reply.Err != nil || !g.members[to].replica.Serving() {
		t.Errorf("the hand-over: %+v", g.replyTo(old, 2))
	}
	if reply, ok := g.replyTo(old, 3).(Reply); !ok || !errors.Is(reply.Err, ErrNoLeader) {
		t.Errorf("the write that came later: %+v", g.replyTo(old, 3))
	}
	g.same()
}

// A leader whose commands are not applied in an election timeout hands over all the same.
func TestHandOverDoesNotWaitForCommandsWithoutEnd(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.pass(time.Second)
	to := g.follower(old)
	g.members[old].replica.proposals[1<<40] = nil // one that is never applied
	g.step(old, HandOver{ID: 2, To: to})
	if g.replyTo(old, 2) != nil {
		t.Fatal("it does not wait")
	}
	g.pass(DefaultElectionTimeout + 2*TickInterval)
	if reply, ok := g.replyTo(old, 2).(Reply); !ok || reply.Err != nil || !g.members[to].replica.Serving() {
		t.Errorf("the hand-over: %+v", g.replyTo(old, 2))
	}
}

// A member that has just started takes over as soon as it may. Until then the leader serves.
func TestMemberInHoldOffTakesOverWhenItMay(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.pass(time.Second)
	to := g.follower(old)
	g.crash(to, 10*time.Millisecond)
	g.pass(400 * time.Millisecond)
	g.step(old, HandOver{ID: 1, To: to})
	if early := g.replyTo(old, 1); early != nil || g.members[to].replica.leading {
		t.Fatalf("it takes over in its vote hold-off: %+v", early)
	}
	if reply := g.do(old, 2, put1("k", "v")); reply.Err != nil {
		t.Errorf("meanwhile the leader does not serve: %v", reply.Err)
	}
	g.pass(700 * time.Millisecond)
	if reply, ok := g.replyTo(old, 1).(Reply); !ok || reply.Err != nil || !g.members[to].replica.Serving() {
		t.Errorf("%+v", g.replyTo(old, 1))
	}
}

// A hand-over to a member that does not answer is aborted, and leaves nothing behind.
func TestHandOverToASilentMemberIsAborted(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	to := g.follower(leader)
	g.cut = func(m Message) bool { return m.To == to }
	g.step(leader, HandOver{ID: 1, To: to})
	g.step(leader, Request{ID: 2, Command: put1("k", "v")})
	g.pass(2 * time.Second)
	if reply, ok := g.replyTo(leader, 1).(Reply); !ok || !errors.Is(reply.Err, ErrHandOver) {
		t.Errorf("hand-over: %+v", g.replyTo(leader, 1))
	}
	if reply, ok := g.replyTo(leader, 2).(Reply); !ok || reply.Err != nil {
		t.Errorf("the put that waited for it: %+v", g.replyTo(leader, 2))
	}
	if again := g.elected(); again != leader {
		t.Errorf("member %d leads", again)
	}
}

// A leader that leaves hands over, and no longer takes part.
func TestLeavingLeaderHandsOver(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.step(old, Leave{ID: 1})
	if reply, ok := g.replyTo(old, 1).(Reply); !ok || reply.Err != nil {
		t.Fatalf("leave: %+v", g.replyTo(old, 1))
	}
	leader := g.elected()
	if leader == old {
		t.Fatal("it still leads")
	}
	g.down[old] = true
	if reply := g.do(leader, 2, put1("k", "v")); reply.Err != nil {
		t.Error(reply.Err)
	}
}

// A leader that leaves does not wait for a dead member, as when all members stop together.
func TestLeavingLeaderDoesNotWaitForADeadMember(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.cut = func(Message) bool { return true }
	g.step(leader, Leave{ID: 1})
	if early := g.replyTo(leader, 1); early != nil {
		t.Fatalf("it does not try to hand over: %+v", early)
	}
	for _, id := range g.ids {
		if id != leader {
			g.step(leader, Unreachable{Member: id})
		}
	}
	if reply, ok := g.replyTo(leader, 1).(Reply); !ok || reply.Err != nil {
		t.Errorf("leave: %+v", g.replyTo(leader, 1))
	}
}

// G11 (docs/design/time-and-identity.md): messages from an emptied directory under a known id are dropped.
func TestEmptiedDirectoryIsRefused(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	victim := g.follower(leader)
	r := g.members[leader].replica
	before := r.Counts().RejectedPeers
	g.step(leader, Received{Incarnation: 0xbad, Message: Message{From: victim, To: leader, Raft: &raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: new(victim), To: new(leader), Term: new(uint64(99)), Index: new(uint64(99)), LogTerm: new(uint64(98)),
	}}})
	if r.Counts().RejectedPeers != before+1 || !r.Serving() {
		t.Error("it was listened to")
	}
}

// C8 (docs/design/time-and-identity.md): the vote hold-off after a start lasts for the longest promise that the
// member ever made.
func TestMemberHoldsOffVotesAfterItsStart(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	restarted := g.follower(leader)
	g.crash(restarted, 10*time.Millisecond)
	w := g.members[restarted]
	promised := clock.DefaultDrift.GrantPromise(900 * time.Millisecond)
	if wait := w.replica.grantor.Campaign(w.clock.Now()); wait == nil {
		t.Error("it may campaign at once")
	}
	w.clock.Advance(promised)
	if w.replica.grantor.Open(w.clock.Now()) {
		t.Error("it may vote too early")
	}
	w.clock.Advance(1)
	if !w.replica.grantor.Open(w.clock.Now()) {
		t.Error("it may still not vote")
	}
}

// An acknowledged renewal outlives the leader that acknowledged it.
func TestRenewalOutlivesTheLeaderThatAcknowledgedIt(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.do(old, 1, entry.Grant{Lease: 7, TTL: 10 * time.Second})
	g.do(old, 2, keyspace.PutRequest{Key: []byte("k"), Lease: 7})
	g.pass(4 * time.Second)
	g.step(old, Renewal{ID: 3, Leases: []lessor.ID{7}})
	g.down[old] = true
	g.pass(9900 * time.Millisecond)
	leader := g.elected()
	if _, ok := g.members[leader].replica.Lessor().Lookup(7); !ok {
		t.Error("the lease ended before the renewal's time was up")
	}
	g.pass(12 * time.Second)
	if _, ok := g.members[leader].replica.Lessor().Lookup(7); ok {
		t.Error("the lease never ends")
	}
	g.same()
}

// While the leader's own disk is slow, others commit and show changes. The leader's answers do not miss them.
func TestSlowLeaderAnswersNothingOlderThanCommitted(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.slow = leader
	g.step(leader, Request{ID: 1, Command: put1("k", "v")})
	follower := g.follower(leader)
	g.step(follower, Read{ID: 2})
	if read, ok := g.replyTo(follower, 2).(ReadAt); !ok || read.Header.Revision != 2 {
		t.Fatalf("the follower reads at %+v", g.replyTo(follower, 2))
	}
	g.step(leader, Read{ID: 3})
	if early := g.replyTo(leader, 3); early != nil {
		t.Errorf("the leader answers before it has applied what it committed: %+v", early)
	}
	g.slow = 0
	g.step(leader)
	if read, ok := g.replyTo(leader, 3).(ReadAt); !ok || read.Header.Revision != 2 {
		t.Errorf("the leader reads at %+v", g.replyTo(leader, 3))
	}
}
