package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test of this file repeats a defect that clusters once had, in as few steps as possible.

// campaigned lets time pass until a member leads that cannot replicate anything, and returns it.
func (g *team) campaigned() uint64 {
	g.t.Helper()
	g.cut = func(m Message) bool { return m.Raft != nil && m.Raft.GetType() == raftpb.MsgApp }
	for range 1000 {
		g.pass(5 * time.Millisecond)
		for _, id := range g.ids {
			if g.members[id].replica.leading {
				return id
			}
		}
	}
	g.t.Fatal("no leader is elected")
	return 0
}

// G11 (docs/design/time-and-identity.md): members that have not exchanged messages know each other's directories by
// having connected. Otherwise a member that lost its directory helps to elect a leader that lacks entries which it
// had acknowledged.
func TestConnectedPeersAreAcquainted(t *testing.T) {
	g := newTeam(t, 3)
	incarnation := map[uint64]uint64{1: 0x101, 2: 0x102, 3: 0x103}
	g.down[3] = true
	old := g.elected()
	emptied := 3 - old
	g.pass(time.Second)
	delete(g.down, 3)
	g.step(3, Received{Message: Message{From: emptied, To: 3}, Incarnation: incarnation[emptied]}) // it connects
	g.pass(5 * time.Second)
	g.cut = func(m Message) bool {
		return m.To == 3 && m.From == old && m.Raft != nil && len(m.Raft.GetEntries()) > 0
	}
	if r := g.do(old, 1, put1("k", "acknowledged")); r.Err != nil {
		t.Fatal(r.Err)
	}
	before := g.members[emptied]
	after := &world{
		t: t, fs: vfs.NewCrashableMem(), clock: clock.NewManual(before.clock.Now()), domain: before.domain, sync: before.sync,
		configure: func(c *Config) { before.configure(c); c.Incarnation = 0x999 },
	}
	after.start()
	before.close()
	g.members[emptied], incarnation[emptied] = after, 0x999
	g.cut = func(m Message) bool {
		if m.From != old && m.To != old {
			again, _ := message.Parse(m.From, m.To, m.AppendTo(nil))
			g.members[m.To].inbox = append(g.members[m.To].inbox, Received{Message: again, Incarnation: incarnation[m.From]})
		}
		return true
	}
	for range 2000 {
		g.pass(5 * time.Millisecond)
		if g.members[3].replica.Serving() || after.replica.Serving() {
			t.Fatal("a leader was elected with the vote of an emptied directory")
		}
	}
}

// C8 (docs/design/time-and-identity.md): an empty directory proves nothing. Its member holds off votes like others
// that start.
func TestEmptyDirectoryHoldsOffVotes(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[1]
	w.clock.Advance(clock.DefaultDrift.GrantPromise(900 * time.Millisecond))
	if w.replica.grantor.Open(w.clock.Now()) {
		t.Error("it may vote at once")
	}
}

func TestPeerWithoutIncarnationIsNotAcquainted(t *testing.T) {
	g := newTeam(t, 3)
	if g.members[1].replica.acquainted(2, 0) {
		t.Error("a member without one is listened to")
	}
}

// G2 (docs/design/time-and-identity.md): an answer to an earlier process of this member acknowledges no request of
// the present one.
func TestAnswerToAnEarlierProcessAcknowledgesNothing(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	g.do(leader, 1, entry.Grant{Lease: 7, TTL: 10 * time.Second})
	var late []Message
	g.cut = func(m Message) bool {
		if len(m.Renewed) > 0 {
			late = append(late, m)
		}
		return len(m.Renewed) > 0
	}
	g.step(follower, Renewal{ID: 21, Leases: []lessor.ID{7}})
	if len(late) == 0 {
		t.Fatal("not answered")
	}
	g.crash(follower, 5*time.Second)
	g.pass(500 * time.Millisecond)
	g.cut = func(m Message) bool { return m.From == follower && len(m.Renewals) > 0 }
	g.step(follower, Renewal{ID: 22, Leases: []lessor.ID{7}})
	again, _ := message.Parse(late[0].From, late[0].To, late[0].AppendTo(nil))
	g.step(follower, Received{Message: again, Incarnation: 0x100 + leader})
	if answer := g.replyTo(follower, 22); answer != nil {
		t.Errorf("acknowledged, and the leader never heard of it: %+v", answer)
	}
}

// Requests to a leader that never served are answered when it leads no longer, and are not carried out later.
func TestQueueOfALeaderThatNeverServedIsAnswered(t *testing.T) {
	g := newTeam(t, 3)
	first := g.campaigned()
	g.step(first, Request{ID: 1, Command: put1("k", "late")})
	g.cut = func(m Message) bool { return m.From == first || m.To == first }
	g.pass(5 * time.Second)
	if reply, ok := g.replyTo(first, 1).(Reply); !ok || reply.Err == nil {
		t.Errorf("not answered: %+v", g.replyTo(first, 1))
	}
	if n := g.members[first].replica.intake.Short(); n > 0 {
		t.Errorf("%d commands still wait", n)
	}
}

// A member that has left does not begin to serve.
func TestMemberThatLeftDoesNotServe(t *testing.T) {
	g := newTeam(t, 3)
	first := g.campaigned()
	g.step(first, Leave{ID: 1})
	g.cut = func(Message) bool { return false }
	g.pass(300 * time.Millisecond)
	if r := g.members[first].replica; !r.left || r.Serving() {
		t.Errorf("left %v, serves %v", r.left, r.Serving())
	}
}

// A hand-over is in progress when its leader leaves. Its outcome is unknown: it may have succeeded.
func TestHandOverOfALeavingLeaderHasUnknownOutcome(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.cut = func(m Message) bool { return m.From == leader }
	g.step(leader, HandOver{ID: 1, To: g.follower(leader)})
	g.step(leader, Leave{ID: 2})
	if reply, ok := g.replyTo(leader, 1).(Reply); !ok || !errors.Is(reply.Err, ErrUnknownOutcome) {
		t.Errorf("hand-over: %+v", g.replyTo(leader, 1))
	}
}

// Renewals that timed out leave nothing behind, at either end.
func TestTimedOutRenewalsAreForgotten(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	follower := g.follower(leader)
	g.step(follower, Renewal{ID: 99, Leases: nil})
	if n := len(g.members[leader].replica.forwarded.came); n > 0 {
		t.Errorf("the leader keeps %d empty renewals", n)
	}
	g.cut = func(m Message) bool { return m.From == follower || m.To == follower }
	g.pass(3 * time.Second)
	for i := range uint64(100) {
		g.step(follower, Renewal{ID: 100 + i, Leases: []lessor.ID{7}})
	}
	g.pass(2 * DefaultReadTimeout)
	f := &g.members[follower].replica.forwarded
	clients := 0
	for _, s := range f.sent { // order: they are only counted
		if !isProbe(s.id) {
			clients++
		}
	}
	if clients > 0 || len(f.sent) > 1 || len(f.unsent) > len(f.sent) {
		t.Errorf("%d of clients and %d in all are under way, and %d numbers are kept", clients, len(f.sent), len(f.unsent))
	}
}

// While a successor fails to be elected, no driver is called again at once all the time.
func TestFailingHandOverDoesNotBusyLoop(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.cut = func(m Message) bool {
		kind := m.Raft.GetType()
		return m.Raft != nil && (kind == raftpb.MsgVoteResp || kind == raftpb.MsgPreVote || kind == raftpb.MsgPreVoteResp)
	}
	g.step(leader, HandOver{ID: 1, To: g.follower(leader)})
	w, busy := g.members[leader], 0
	for i := 0; i < 1000 && g.replyTo(leader, 1) == nil; i++ {
		g.pass(5 * time.Millisecond)
		if w.step(Tick{}); w.wait() == 0 && len(w.writes) == 0 {
			busy++
		}
	}
	if busy > 10 {
		t.Errorf("%d times it wanted to be called at once", busy)
	}
}

// A leader whose own disk lags behind the commit index refuses reads in time.
func TestLaggingLeaderAnswersInTime(t *testing.T) {
	const timeout = 200 * time.Millisecond
	g := newTeamOf(t, 3, func(c *Config) { c.ReadTimeout = timeout })
	leader := g.elected()
	g.pass(time.Second)
	g.slow = leader
	g.step(leader, Request{ID: 1, Command: put1("k", "v")})
	g.step(leader, Read{ID: 2})
	g.pass(timeout + 10*time.Millisecond)
	r := g.members[leader].replica
	waits := slices.ContainsFunc(r.lagging, func(p parked) bool { return p.event == Read{ID: 2} })
	if !r.Serving() || waits {
		t.Errorf("serves %v, and the read waits: %v", r.Serving(), waits)
	}
	if reply, ok := g.replyTo(leader, 2).(Reply); !ok || reply.Err == nil {
		t.Errorf("read: %+v", g.replyTo(leader, 2))
	}
}

// A follower that lags begins no more rounds than it can use, however many reads wait.
func TestLaggingFollowerBeginsFewRounds(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.ReadTimeout = time.Minute })
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	g.slow = follower
	g.step(leader, Request{ID: 1, Command: put1("k", "v")})
	for i := range uint64(50) {
		g.step(follower, Read{ID: 100 + i})
	}
	if n := len(g.members[follower].replica.confirming.pending); n == 0 || n > maxPendingReads {
		t.Errorf("%d rounds wait for the own state", n)
	}
	g.slow = 0
	g.pass(50 * time.Millisecond)
	for i := range uint64(50) {
		if _, ok := g.replyTo(follower, 100+i).(ReadAt); !ok {
			t.Fatalf("read %d: %+v", i, g.replyTo(follower, 100+i))
		}
	}
}

// However many renewals a leader answers at once, no message has more answers than fit.
func TestAnswersToOtherMembersAreBounded(t *testing.T) {
	const renewals, each = 40, 1000
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	var events []Event
	for i := range uint64(renewals) {
		ids := make([]lessor.ID, each)
		for j := range ids {
			ids[j] = lessor.ID(i*each + uint64(j) + 1)
		}
		events = append(events, Renewal{ID: 100 + i, Leases: ids})
	}
	g.sent = nil
	g.step(follower, events...)
	for _, m := range g.sent {
		ids := 0
		for _, renewed := range m.Renewed {
			ids += len(renewed.Leases)
		}
		if ids > maxForwardedIDs {
			t.Errorf("a message answers for %d leases", ids)
		}
	}
	for i := range uint64(renewals) {
		if renewed, ok := g.replyTo(follower, 100+i).(Renewed); !ok || len(renewed.Leases) != each {
			t.Fatalf("renewal %d is not answered: %d leases", i, len(renewed.Leases))
		}
	}
}
