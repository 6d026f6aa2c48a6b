package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/datadir"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/statexfer"
)

// performState does at once what concerns whole states.
func (w *world) performState(e Effect) {
	switch e := e.(type) {
	case Install:
		if w.held = &e; !w.holdInstall {
			w.installNow()
		}
	case Discard:
		if err := e.State.Discard(); err != nil {
			w.t.Fatalf("discard: %v", err)
		}
		w.discards++
	}
}

func (w *world) installNow() {
	w.inbox = append(w.inbox, Installed{Sequence: w.held.Sequence, Err: statexfer.Install(context.Background(), w.db, w.held.State.(*statexfer.Staged), w.held.Own)})
	w.installs++
	w.held = nil
}

// staged returns the files that are left of received states.
func (w *world) staged() (names []string) {
	all, err := w.fs.List("")
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(name string) bool { return !strings.HasPrefix(name, datadir.StagedPrefix) })
}

// carryState carries a state to another member, and reports the outcome to both.
func (g *team) carryState(e Ship) {
	if g.holdShips {
		g.hold(e)
		return
	}
	var stream bytes.Buffer
	if err := errors.Join(statexfer.Write(&stream, e.State), e.State.Close()); err != nil {
		g.t.Fatalf("the state cannot be written: %v", err)
	}
	g.sent = append(g.sent, e.Message)
	from, to := g.members[e.Message.From], g.members[e.Message.To]
	if g.cut(e.Message) || g.down[e.Message.To] {
		from.inbox = append(from.inbox, Shipped{To: e.Message.To, Err: errors.New("lost")})
		return
	}
	message, err := message.Parse(e.Message.From, e.Message.To, e.Message.AppendTo(nil))
	if err != nil {
		g.t.Fatal(err)
	}
	staged, err := statexfer.Stage(context.Background(), to.fs, "", rand.Uint64(), &stream, statexfer.Receipt{ClusterID: to.replica.identity.ClusterID, Domain: to.replica.ClockDomain(), Now: to.clock.Now})
	if err != nil {
		g.t.Fatalf("the state cannot be read: %v", err)
	}
	to.inbox = append(to.inbox, Received{Message: message, Incarnation: 0x100 + message.From, State: staged})
	from.inbox = append(from.inbox, Shipped{To: e.Message.To})
}

// hold keeps a state on its way. While one is, no other is sent.
func (g *team) hold(e Ship) {
	if len(g.onTheWay) == 0 {
		g.onTheWay = append(g.onTheWay, e)
		return
	}
	from := g.members[e.Message.From]
	from.inbox = append(from.inbox, Shipped{To: e.Message.To, Err: errors.Join(errors.New("a state is on its way already"), e.State.Close())})
}

// statesSent counts the states that were sent to a member.
func (g *team) statesSent(to uint64) (n int) {
	for _, m := range g.sent {
		if m.To == to && m.Raft != nil && m.Raft.GetType() == raftpb.MsgSnap {
			n++
		}
	}
	return n
}

func newLaggingTeam(t testing.TB) *team {
	return newTeamOf(t, 3, func(c *Config) { c.LogKeep = 4 })
}

// newTeamWithLaggard returns a cluster with a cut off follower that needs entries which the logs no longer have.
func newTeamWithLaggard(t testing.TB, seed uint64) (g *team, leader, laggard uint64) {
	t.Helper()
	g = newLaggingTeam(t)
	leader = g.elected()
	laggard = g.follower(leader)
	g.cut = func(m Message) bool { return m.To == laggard || m.From == laggard }
	g.work(rand.New(rand.NewPCG(1, seed)), leader)
	return g, leader, laggard
}

// work makes the leader do random work until its log no longer reaches back to the beginning.
func (g *team) work(rng *rand.Rand, leader uint64) {
	g.t.Helper()
	w := g.members[leader]
	begin := w.replica.Applied()
	for range 10 {
		for range 12 {
			g.requests++
			event := randomEvent(rng, g.requests)
			if rng.IntN(2) == 0 {
				event = randomNameEvent(rng, g.requests)
			}
			g.step(leader, event)
		}
		g.pass(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
	if end := w.replica.log.Truncated().Index; end <= begin {
		g.t.Fatalf("the log reaches back to %d, and %d was applied before", end, begin)
	}
}

// identical checks that all members have come equally far, to the same state.
func (g *team) identical() {
	g.t.Helper()
	g.same()
	want := uint32(0)
	for i, id := range g.ids {
		w := g.members[id]
		hash, err := w.replica.Store().Hash(context.Background())
		if err != nil {
			g.t.Fatal(err)
		}
		if i == 0 {
			want = hash.Hash
		} else if hash.Hash != want {
			g.t.Errorf("member %d has hash %x, the first %x", id, hash.Hash, want)
		}
		if left := w.staged(); len(left) > 0 {
			g.t.Errorf("member %d has not removed %v", id, left)
		}
	}
}

// A member that needs entries which the log no longer has gets the whole state. Then it continues like the others,
// also after a restart and as leader.
func TestLaggingMemberGetsTheWholeState(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			g := newLaggingTeam(t)
			leader := g.elected()
			g.work(rng, leader)
			laggard := g.follower(leader)
			g.cut = func(m Message) bool { return m.To == laggard || m.From == laggard }
			g.work(rng, leader)
			g.cut = func(Message) bool { return false }
			g.sent = nil
			g.pass(time.Second)
			leader = g.elected()
			if n := g.statesSent(laggard); n == 0 {
				t.Fatal("no state was sent")
			}
			if n := g.members[laggard].installs; n == 0 {
				t.Fatal("no state was installed")
			}
			g.identical()
			g.work(rng, leader)
			g.identical()

			g.crash(laggard, 0)
			g.pass(3 * time.Second)
			g.identical()

			if reply := g.order(g.elected(), 1<<40, HandOver{ID: 1 << 40, To: laggard}); g.elected() != laggard {
				t.Fatalf("member %d leads: %v", g.elected(), reply.Err)
			}
			g.work(rng, laggard)
			g.identical()
		})
	}
}

// A member with a new data directory gets the whole state, as one that lags.
func TestNewMemberGetsTheWholeState(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	g := newLaggingTeam(t)
	g.down[3] = true
	g.work(rng, g.elected())
	g.down[3] = false
	g.pass(2 * time.Second)
	if g.members[3].installs == 0 {
		t.Fatal("no state was installed")
	}
	g.identical()
}

// C4 (docs/design/time-and-identity.md): the instants in a state were read on the sender's clocks. The receiver
// counts from the state's arrival.
func TestReceivedStateCountsTimeFromItsArrival(t *testing.T) {
	g := newLaggingTeam(t)
	leader := g.elected()
	const ttl = 20 * time.Second
	g.do(leader, 1, entry.Grant{Lease: 7, TTL: ttl})
	laggard := g.follower(leader)
	g.cut = func(m Message) bool { return m.To == laggard || m.From == laggard }
	g.pass(15 * time.Second) // long enough for a checkpoint
	for i := range uint64(20) {
		g.do(leader, 2+i, put1("k", "v"))
	}
	at := g.members[laggard].clock.Now()
	g.cut = func(Message) bool { return false }
	w := g.members[laggard]
	for i := 0; w.installs == 0; i++ { // and no longer: records of later entries have this member's own instants anyway
		if i > 400 {
			t.Fatal("no state was installed")
		}
		g.pass(5 * time.Millisecond)
	}
	checked := 0
	check := func(what string, m *logpb.Instant, domain uint32) {
		checked++
		instant := clock.Instant{Raw: m.GetRawNs(), Boot: m.GetBootNs()}
		if domain != w.replica.instants.Domain() {
			t.Errorf("%s is of domain %d", what, domain)
		}
		if now := w.clock.Now(); instant.Raw < at.Raw || instant.Boot < at.Boot || instant.Raw > now.Raw || instant.Boot > now.Boot {
			t.Errorf("%s is at %v, and it came between %v and %v", what, instant, at, now)
		}
	}
	err := record.Leases(w.db, func(m *logpb.Lease) bool {
		if m.Checkpointed == nil {
			t.Fatalf("lease %d was not checkpointed", m.Id)
		}
		check("a checkpoint", m.Checkpointed.Applied, m.Checkpointed.Domain)
		return true
	})
	err = errors.Join(err, record.Leaderships(w.db, func(m *logpb.Leadership) bool {
		check("a leadership", m.Applied, m.Domain)
		return true
	}))
	if err != nil || checked < 2 {
		t.Fatalf("%d instants, %v", checked, err)
	}
	// Nothing ends early when it leads: at the sender at most 5 s were left, and the checkpoint says how much.
	record, _ := w.replica.Lessor().Record(7)
	if record.Remaining <= 0 || record.Remaining > ttl/2 {
		t.Errorf("the checkpoint says that %v are left", record.Remaining)
	}
}

// A snapshot that raft does not accept leaves nothing behind.
func TestLateStateIsDiscarded(t *testing.T) {
	g := newLaggingTeam(t)
	leader := g.elected()
	g.work(rand.New(rand.NewPCG(1, 5)), leader)
	w, to := g.members[leader], g.follower(leader)
	snapshot, err := w.replica.log.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	message := Message{From: leader, To: to, Raft: &raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: new(leader), To: new(to), Term: new(w.replica.term), Snapshot: snapshot,
	}}
	if err := w.replica.Flush(); err != nil {
		t.Fatal(err)
	}
	before := g.members[to].dump()
	g.carryState(Ship{Message: message, State: w.db.NewSnapshot()})
	if len(g.members[to].staged()) != 1 {
		t.Fatal("nothing was staged")
	}
	g.rest()
	if m := g.members[to]; m.installs != 0 || m.discards != 1 || len(m.staged()) > 0 || m.dump() != before {
		t.Errorf("%d installs, %d discarded, left: %v", m.installs, m.discards, m.staged())
	}
}

// What raft wants on stable storage after a snapshot waits for it, and raft hears of both in order.
func TestWritesWaitForAnInstallation(t *testing.T) {
	g, leader, laggard := newTeamWithLaggard(t, 6)
	g.cut = func(Message) bool { return false }
	w := g.members[laggard]
	w.holdInstall = true
	for i := 0; w.held == nil; i++ {
		if i > 1000 {
			t.Fatal("nothing is to be installed")
		}
		g.pass(5 * time.Millisecond)
	}
	term := w.replica.term
	if _, err := w.replica.Store().Hash(context.Background()); err == nil {
		t.Error("the keyspace can be read while it is replaced")
	}
	w.step(Received{Incarnation: 0x100 + leader, Message: Message{From: leader, To: laggard, Raft: &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: new(leader), To: new(laggard), Term: new(term + 1),
	}}})
	for _, e := range w.effects {
		if _, ok := e.(Persist); ok {
			t.Errorf("while the state is replaced: %v", e)
		}
	}
	w.installNow()
	g.rest()
	if got := w.replica.log.HardState().GetTerm(); got != term+1 {
		t.Errorf("the term on stable storage is %d, and not %d", got, term+1)
	}
	g.pass(3 * time.Second)
	g.elected()
	g.identical()
}

// A write was in progress when the state was replaced. It is reported afterwards, and changes nothing.
func TestWriteFromBeforeAnInstallationIsVoid(t *testing.T) {
	g, leader, laggard := newTeamWithLaggard(t, 11)
	from, w := g.members[leader], g.members[laggard]
	message := func(kind raftpb.MessageType) Message {
		return Message{From: leader, To: laggard, Raft: &raftpb.Message{
			Type: kind.Enum(), From: new(leader), To: new(laggard), Term: new(from.replica.term + 1),
		}}
	}
	w.step(Received{Message: message(raftpb.MsgHeartbeat), Incarnation: 0x100 + leader})
	if len(w.writes) != 1 {
		t.Fatalf("%d writes are under way", len(w.writes))
	}
	snapshot, err := from.replica.log.Snapshot()
	if err = errors.Join(err, from.replica.Flush()); err != nil {
		t.Fatal(err)
	}
	snap := message(raftpb.MsgSnap)
	snap.Raft.Snapshot = snapshot
	g.cut = func(Message) bool { return false }
	g.carryState(Ship{Message: snap, State: from.db.NewSnapshot()})
	inbox := w.inbox
	w.inbox = nil
	w.step(inbox...)
	installed := w.inbox
	w.inbox = nil
	w.step(installed...)
	w.settle()
	hard, at := w.replica.log.HardState(), snapshot.GetMetadata().GetIndex()
	if w.installs != 1 || hard.GetTerm() != from.replica.term+1 || hard.GetCommit() < at || w.replica.log.Last() < at {
		t.Errorf("%d installs; %v is on stable storage, and the log up to %d", w.installs, hard, w.replica.log.Last())
	}
}

// While the only other active member is being sent the whole state nothing commits, however long that takes. The
// members do not elect another leader: each time the state would have been sent in vain.
func TestLeaderWaitsForAStateOnItsWay(t *testing.T) {
	g, _, laggard := newTeamWithLaggard(t, 12)
	leader := g.elected()
	term := g.members[leader].replica.term
	for _, id := range g.ids {
		g.down[id] = id != leader && id != laggard
	}
	g.holdShips, g.cut = true, func(Message) bool { return false }
	g.step(leader, Request{ID: 1 << 41, Command: put1("k", "v")})
	g.pass(20 * time.Second)
	if len(g.onTheWay) != 1 {
		t.Fatalf("%d states are on their way", len(g.onTheWay))
	}
	g.holdShips = false
	g.carryState(g.onTheWay[0])
	g.rest()
	g.pass(2 * TickInterval)
	if reply, ok := g.replyTo(leader, 1<<41).(Reply); !ok || reply.Err != nil || g.members[laggard].installs != 1 {
		t.Errorf("in term %d, before %d, with %d installs, the put is answered: %+v",
			g.members[leader].replica.term, term, g.members[laggard].installs, g.replyTo(leader, 1<<41))
	}
}

// Entries that are written while a state is on its way are still in the log when it arrives, so the member needs no
// second state. But the log does not grow for ever because of it.
func TestLogIsKeptForAStateOnItsWay(t *testing.T) {
	for _, writes := range []int{5 * 4, 20 * spareFactor * 4} {
		g, leader, laggard := newTeamWithLaggard(t, 13)
		g.holdShips, g.cut = true, func(Message) bool { return false }
		for i := 0; len(g.onTheWay) == 0; i++ {
			if i > 1000 {
				t.Fatal("no state is on its way")
			}
			g.pass(5 * time.Millisecond)
		}
		r := g.members[leader].replica
		for i := range uint64(writes) {
			g.do(leader, 1<<42+i, put1("k", "v"))
		}
		if n := r.log.Last() - r.log.Truncated().Index; n > (spareFactor+2)*4 {
			t.Errorf("%d entries are in the log", n)
		}
		g.holdShips = false
		g.carryState(g.onTheWay[0])
		g.rest()
		g.pass(time.Second)
		if installs := g.members[laggard].installs; (installs == 1) != (writes == 20) {
			t.Errorf("after %d writes meanwhile it was sent %d states", writes, installs)
		}
		g.identical()
	}
}

// A silent leader sends no state either, and reports that to raft. Otherwise raft would wait for the outcome, and
// send that member nothing as long as this leader leads.
func TestSilentLeaderSendsTheStateLater(t *testing.T) {
	g, leader, laggard := newTeamWithLaggard(t, 22)
	w, other := g.members[leader], 6-leader-laggard
	term := w.replica.term
	w.step(Request{ID: 1 << 40, Command: put1("k", "stalls")}) // and the disk does not get done
	for i := 0; !w.replica.holder.Silent(w.clock.Now()); i++ {
		if i > 100 || !w.replica.leading {
			t.Fatalf("after %d steps the leader is not silent; it leads: %v", i, w.replica.leading)
		}
		w.clock.Advance(20 * time.Millisecond)
		w.step(Received{Incarnation: 0x100 + other, Message: Message{From: other, To: leader, Raft: &raftpb.Message{
			Type: raftpb.MsgHeartbeatResp.Enum(), From: &other, To: &leader, Term: &term,
		}}})
	}
	effects := w.step(Received{Incarnation: 0x100 + laggard, Message: Message{From: laggard, To: leader, Raft: &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: &laggard, To: &leader, Term: &term, Index: new(w.replica.log.Last()), Reject: new(true),
	}}})
	for _, effect := range effects {
		if _, ok := effect.(Ship); ok {
			t.Fatal("the leader is silent, and sends its state")
		}
	}
	w.replica.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		if id == laggard && p.State == tracker.StateSnapshot {
			t.Error("raft waits for the outcome of a state that was never sent")
		}
	})
}
