package replica

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// These tests repeat histories in which raft's own leases, or those of other systems on raft, gave stale answers. Each does
// to a cluster of ours what happened there, and checks the answers. Unless a test says otherwise the members are eager: they
// vote and campaign as soon as their promises allow it.

// witness watches a team: what it reads, and who may answer.
type witness struct {
	*team
	acknowledged int64            // the newest revision
	floors       map[uint64]int64 // by read: what was acknowledged before it was put
}

func newWitness(t testing.TB, eager bool) *witness {
	g := newTeamOf(t, 3, func(c *Config) { c.Eager = eager })
	return &witness{team: g, floors: make(map[uint64]int64)}
}

// begin waits for a leader, makes it write, and lets the cluster run for a while.
func (w *witness) begin(d time.Duration) (leader uint64) {
	w.t.Helper()
	leader = w.elected()
	w.mustWrite(leader)
	w.pass(d)
	if !w.members[leader].replica.Serving() {
		w.t.Fatal("the leader did not last")
	}
	return leader
}

func (w *witness) mustWrite(id uint64) {
	w.t.Helper()
	if !w.write(id) {
		w.t.Fatalf("member %d does not write", id)
	}
}

// write has a member change something, and reports whether that was acknowledged at once.
func (w *witness) write(id uint64) bool {
	w.requests++
	w.step(id, Request{ID: w.requests, Command: put1("k", fmt.Sprint(w.requests))})
	reply, ok := w.replyTo(id, w.requests).(Reply)
	if !ok || reply.Err != nil {
		return false
	}
	w.acknowledged = max(w.acknowledged, reply.Header.Revision)
	return true
}

// tryRead asks a member, as a driver does, and reports whether it allows the read at once. If it does so later, check looks
// at that too.
func (w *witness) tryRead(id uint64) bool {
	w.requests++
	w.floors[w.requests] = w.acknowledged
	w.put(id, Read{ID: w.requests})
	_, ok := w.replyTo(id, w.requests).(ReadAt)
	w.check()
	return ok
}

// renew asks a member to renew a lease, and reports whether it did so at once.
func (w *witness) renew(id uint64, lease lessor.ID) bool {
	w.requests++
	w.put(id, Renewal{ID: w.requests, Leases: []lessor.ID{lease}})
	renewed, ok := w.replyTo(id, w.requests).(Renewed)
	return ok && renewed.Leases[0].Err == nil
}

func (w *witness) put(id uint64, event Event) {
	m := w.members[id]
	effects, ok := m.replica.Answer(m.clock.Now(), event)
	if ok {
		w.perform(id, effects)
		return
	}
	w.step(id, event)
}

// pass lets time pass, and checks the cluster all along.
func (w *witness) pass(d time.Duration) {
	w.t.Helper()
	for ; d > 0; d -= 5 * time.Millisecond {
		w.team.pass(5 * time.Millisecond)
		w.check()
	}
}

func (w *witness) check() {
	w.t.Helper()
	var sovereign []uint64
	for _, id := range w.ids {
		if w.members[id].replica.Authority().Holds(w.members[id].clock.Now()) {
			sovereign = append(sovereign, id)
		}
		for _, effect := range w.replies[id] {
			if read, ok := effect.(ReadAt); ok && read.Header.Revision < w.floors[read.ID] {
				w.t.Fatalf("member %d reads at revision %d when %d was acknowledged", id, read.Header.Revision, w.floors[read.ID])
			}
		}
		w.replies[id] = nil
	}
	if len(sovereign) > 1 {
		w.t.Fatalf("members %d have authority at the same moment", sovereign)
	}
}

// takeover lets time pass until another member than old leads and has written, while clients still ask old. It returns the
// new leader, and how many of old's clients were answered before. From then on none is.
func (w *witness) takeover(old uint64) (leader uint64, answered int) {
	w.t.Helper()
	for range 1000 {
		if w.tryRead(old) {
			answered++
		}
		w.pass(5 * time.Millisecond)
		for _, id := range w.ids {
			if id != old && w.members[id].replica.Serving() {
				w.mustWrite(id)
				for range 100 {
					if w.tryRead(old) {
						w.t.Fatal("the old leader answers after another has written")
					}
					w.pass(5 * time.Millisecond)
				}
				return id, answered
			}
		}
	}
	w.t.Fatal("no member takes over")
	return 0, 0
}

func (w *witness) term(id uint64) uint64 { return w.members[id].replica.term }

// isolate loses all messages from and to a member.
func (w *witness) isolate(id uint64) {
	w.cut = func(m Message) bool { return m.From == id || m.To == id }
}

func (w *witness) sever(a, b uint64) {
	w.cut = func(m Message) bool { return m.From == a && m.To == b || m.From == b && m.To == a }
}

// others are the members but one.
func (w *witness) others(id uint64) (a, b uint64) {
	ids := slices.DeleteFunc(slices.Clone(w.ids), func(other uint64) bool { return other == id })
	return ids[0], ids[1]
}

// E1 (docs/design/master-leases.md): a leader that was heard just now is isolated, at any moment between two of its
// heartbeats and between two of its checks of the others. The others elect and write as soon as they may. From then
// on the old leader answers nothing. All clocks are perfect.
func TestIsolatedLeaderAnswersNothingStale(t *testing.T) {
	for lag := time.Duration(0); lag < time.Second; lag += 35 * time.Millisecond {
		w := newWitness(t, true)
		old := w.begin(time.Second + lag)
		w.isolate(old)
		if _, answered := w.takeover(old); answered < 100 {
			t.Errorf("%v: only %d reads were answered from the lease", lag, answered)
		}
	}
}

// E2 (docs/design/master-leases.md): a follower that keeps a leader in office restarts. The other follower has not
// heard that leader for long, and asks for votes. The restarted one has forgotten its promise, and does not vote yet.
func TestRestartedVoterKeepsItsPromise(t *testing.T) {
	for _, alsoCut := range []bool{false, true} {
		t.Run(fmt.Sprintf("leader cut off %v", alsoCut), func(t *testing.T) {
			w := newWitness(t, true)
			old := w.begin(time.Second)
			candidate, voter := w.others(old)
			w.sever(old, candidate)
			w.pass(3 * DefaultElectionTimeout)
			term := w.term(old)
			if w.members[candidate].replica.Counts().Campaigns < 3 {
				t.Fatal("no member campaigns")
			}
			w.crash(voter, 5*time.Millisecond)
			if alsoCut {
				w.isolate(old)
				w.takeover(old)
				return
			}
			for range 400 {
				w.tryRead(old)
				w.pass(5 * time.Millisecond)
			}
			if w.term(voter) != term || !w.tryRead(old) {
				t.Errorf("a leader that a majority hears was voted out, in term %d", w.term(voter))
			}
		})
	}
}

// handingOver has old order another to campaign at once, and returns who that is and the order, which does not arrive.
func (w *witness) handingOver(old uint64) (to uint64, order Message) {
	w.t.Helper()
	to, _ = w.others(old)
	w.cut = func(m Message) bool {
		if m.Raft.GetType() == raftpb.MsgTimeoutNow {
			order = m
		}
		return order.Raft != nil && m.Raft.GetType() == raftpb.MsgTimeoutNow
	}
	w.requests++
	w.step(old, HandOver{ID: w.requests, To: to})
	if order.Raft == nil || order.Lease.Release == nil {
		w.t.Fatal("no member was ordered to campaign")
	}
	return to, order
}

func (w *witness) arrive(m Message) {
	w.step(m.To, Received{Message: m, Incarnation: 0x100 + m.From})
}

// E3 (docs/design/master-leases.md): a hand-over is aborted. Long after, the order to campaign arrives, when the
// leader cannot be reached. It contradicts a later promise, and is ignored. (During a hand-over the leader asks for
// no promises, so eager members would elect another leader meanwhile.)
func TestLateOrderToCampaignIsIgnored(t *testing.T) {
	w := newWitness(t, false)
	old := w.begin(time.Second)
	to, order := w.handingOver(old)
	w.pass(2 * DefaultElectionTimeout)
	if w.members[old].replica.transferee != 0 {
		t.Fatal("the hand-over goes on")
	}
	w.pass(5 * DefaultElectionTimeout)
	w.mustWrite(old)
	w.isolate(old)
	campaigns, term := w.members[to].replica.Counts().Campaigns, w.term(old)
	w.arrive(order)
	if now := w.members[to].replica.Counts().Campaigns; now != campaigns || w.term(to) != term {
		t.Errorf("it campaigned, and is in term %d", w.term(to))
	}
	if !w.tryRead(old) {
		t.Error("the leader has lost its lease")
	}
	w.takeover(old)
}

// E3b (docs/design/master-leases.md): the order to campaign arrives, and no other message of the leader does. The
// other member leads at once. While the old leader still believes that it is handing over, it neither reads nor
// renews.
func TestLeaderThatHandsOverAnswersNothing(t *testing.T) {
	w := newWitness(t, true)
	old := w.begin(time.Second)
	if reply := w.do(old, 1<<32, entry.Grant{Lease: 7, TTL: time.Minute}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	to, order := w.handingOver(old)
	w.isolate(old)
	if w.tryRead(old) || w.renew(old, 7) {
		t.Error("it answers after the order has left")
	}
	w.arrive(order)
	if !w.members[to].replica.Serving() {
		t.Fatal("the other does not lead at once")
	}
	w.mustWrite(to)
	if r := w.members[old].replica; !r.leading || r.transferee != to {
		t.Fatal("it knows already")
	}
	for range 200 {
		if w.tryRead(old) || w.renew(old, 7) {
			t.Fatal("the old leader answers")
		}
		w.pass(5 * time.Millisecond)
	}
}

// E4 (docs/design/master-leases.md): a leader stands still for a hundred election timeouts while its clocks run.
// Afterwards it first looks at the clocks, and not at its heartbeats: it has missed none of them.
func TestPausedLeaderAnswersNothingStale(t *testing.T) {
	w := newWitness(t, false)
	old := w.begin(time.Second)
	if reply := w.do(old, 1<<32, entry.Grant{Lease: 7, TTL: time.Hour}); reply.Err != nil {
		t.Fatal(reply.Err)
	}
	m := w.members[old]
	w.requests++
	w.put(old, Read{ID: w.requests})
	before, ok := w.replyTo(old, w.requests).(ReadAt)
	if !ok {
		t.Fatal("it does not read")
	}
	w.down[old] = true
	w.pass(2 * DefaultElectionTimeout)
	leader := w.elected()
	for range 98 { // nothing more happens to the others
		for _, id := range w.ids {
			w.members[id].clock.Advance(TickInterval * 10)
		}
		w.step(leader, Tick{})
	}
	leader = w.elected()
	w.mustWrite(leader)
	delete(w.down, old)
	w.isolate(old)
	if !m.replica.leading {
		t.Fatal("it knows already")
	}
	if w.tryRead(old) || w.renew(old, 7) {
		t.Error("it answers")
	}
	if m.clock.Now().Before(before.Authority) {
		t.Errorf("what it was about to answer before would still be sent: %v is before %v", m.clock.Now(), before.Authority)
	}
	w.cut = func(Message) bool { return false }
	w.pass(time.Second)
	if !w.tryRead(old) {
		t.Error("it does not read by way of the new leader either")
	}
}
