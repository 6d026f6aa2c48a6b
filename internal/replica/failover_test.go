package replica

import (
	"errors"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// soon is how long an election takes here: time passes in steps of 5 ms.
const soon = 25 * time.Millisecond

// usualPromise is what a follower promises with default settings.
var usualPromise = clock.DefaultDrift.GrantPromise(900 * time.Millisecond)

// kill takes a leader away and returns the next one, and how long it took until that served.
func (g *team) kill(leader uint64) (next uint64, leaderless time.Duration) {
	g.t.Helper()
	g.down[leader] = true
	for ; leaderless < 10*time.Second; leaderless += 5 * time.Millisecond {
		for _, id := range g.ids {
			if r := g.members[id].replica; !g.down[id] && r.Serving() {
				return id, leaderless
			}
		}
		g.pass(5 * time.Millisecond)
	}
	g.t.Fatal("no member takes over")
	return 0, 0
}

// afterHeartbeat lets time pass until the leader has just sent heartbeats, and some more.
func (g *team) afterHeartbeat(leader uint64, more time.Duration) {
	g.t.Helper()
	for range 100 {
		g.sent = nil
		g.pass(5 * time.Millisecond)
		for _, m := range g.sent {
			if m.From == leader && m.Raft.GetType() == raftpb.MsgHeartbeat {
				g.pass(more)
				return
			}
		}
	}
	g.t.Fatal("there are no heartbeats")
}

// write writes every 5 ms, and looks whether the leader has authority all the time.
func (g *team) write(leader uint64, d time.Duration) {
	g.t.Helper()
	for ; d > 0; d -= 5 * time.Millisecond {
		g.requests++
		if reply := g.do(leader, 1_000_000+g.requests, put1("k", "v")); reply.Err != nil {
			g.t.Fatal(reply.Err)
		}
		g.pass(5 * time.Millisecond)
		if w := g.members[leader]; !w.replica.Authority().Holds(w.clock.Now()) {
			g.t.Fatalf("the leader has no authority %v before the end", d)
		}
	}
}

// Failed requests for votes do not delay the next election: neither those that were parked while there was a leader,
// nor those that come when it is gone.
func TestFailoverIsNotDelayedByOldBallots(t *testing.T) {
	for _, late := range []bool{false, true} {
		g := newTeam(t, 3)
		leader := g.elected()
		for range 4 { // who comes first is another from term to term
			g.pass(time.Second)
			term := g.members[leader].replica.term
			if late {
				g.afterHeartbeat(leader, 0)
			}
			for _, from := range g.ids {
				for _, to := range g.ids {
					if from == to || to == leader {
						continue
					}
					g.askForVote(from, to, raftpb.MsgPreVote, term)
					g.askForVote(from, to, raftpb.MsgVote, term)
					if !late {
						g.askForVote(from, to, raftpb.MsgPreVote, term+1)
					}
				}
			}
			if !late {
				g.afterHeartbeat(leader, 0)
			}
			dead := leader
			next, leaderless := g.kill(leader)
			if leaderless > usualPromise+soon {
				t.Errorf("late %v, term %d: there is no leader for %v", late, term, leaderless)
			}
			g.crash(dead, time.Second)
			leader = next
		}
	}
}

// askForVote has a member ask another, which has all that is in its log, or so it says.
func (g *team) askForVote(from, to uint64, kind raftpb.MessageType, term uint64) {
	r := g.members[to].replica
	g.claimToHave(from, to, kind, term, r.log.Last())
}

func (g *team) claimToHave(from, to uint64, kind raftpb.MessageType, term, last uint64) {
	lastTerm, err := g.members[to].replica.log.Term(last)
	if err != nil {
		g.t.Fatal(err)
	}
	g.step(to, Received{Incarnation: 0x100 + from, Message: Message{From: from, To: to, Raft: &raftpb.Message{
		Type: kind.Enum(), From: &from, To: &to, Term: &term, Index: &last, LogTerm: &lastTerm,
	}}})
}

// While clients write much, promises end as if they wrote nothing: only heartbeats ask for promises.
func TestFailoverUnderConstantWrites(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.write(leader, 2*time.Second)
	before := g.members[leader].replica.holder.Stats(g.members[leader].clock.Now())
	g.sent = nil
	g.write(leader, 2*time.Second)
	for _, m := range g.sent {
		if m.Raft.GetType() == raftpb.MsgApp && m.Lease.Request != nil {
			t.Fatal("an append asks for a promise")
		}
	}
	after := g.members[leader].replica.holder.Stats(g.members[leader].clock.Now())
	if after.Without != before.Without || after.Misses != before.Misses || after.Rounds != before.Rounds {
		t.Errorf("authority lapsed: %+v, and before %+v", after, before)
	}
	g.afterHeartbeat(leader, 0)
	const since = 80 * time.Millisecond
	g.write(leader, since)
	if _, leaderless := g.kill(leader); leaderless > usualPromise-since+soon {
		t.Errorf("there is no leader for %v after a last heartbeat %v before", leaderless, since)
	}
}

// Heartbeats are regular, whatever else a leader does between them.
func TestHeartbeatsAreRegular(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.afterHeartbeat(leader, 0)
	w := g.members[leader]
	for _, passed := range []time.Duration{30 * time.Millisecond, 60 * time.Millisecond, 95 * time.Millisecond} {
		w.clock.Advance(passed - w.clock.Now().Elapsed(w.replica.ticked))
		effects := w.step(Request{ID: uint64(1000 + passed), Command: put1("k", "v")})
		if wake, ok := effects[len(effects)-1].(WakeAt); !ok || wake.Wait > TickInterval-passed {
			t.Errorf("%v after heartbeats it wants to be called after %+v", passed, effects[len(effects)-1])
		}
	}
}

// Where heartbeats are lost, appends ask for promises before the authority runs out.
func TestAuthorityLastsWithoutHeartbeats(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.cut = func(m Message) bool { return m.Raft.GetType() == raftpb.MsgHeartbeat }
	g.write(leader, 4*time.Second)
}

// A candidate that lacks entries does not delay the member that has them.
func TestCandidateThatLacksEntriesDelaysNoElection(t *testing.T) {
	for range 3 {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		first, other := uint64(0), uint64(0)
		for _, id := range g.ids {
			switch {
			case id == leader:
			case g.members[id].replica.turn() == 0:
				first = id
			default:
				other = id
			}
		}
		g.afterHeartbeat(leader, 0)
		g.cut = func(m Message) bool { return m.To == first && m.Raft.GetType() == raftpb.MsgApp }
		if reply := g.do(leader, 1, put1("k", "v")); reply.Err != nil {
			t.Fatal(reply.Err)
		}
		g.cut = func(Message) bool { return false }
		next, leaderless := g.kill(leader)
		if next != other || g.members[first].replica.Counts().Campaigns == 0 {
			t.Errorf("member %d leads after %d, and %d, which lacked an entry, was to come first", next, leader, first)
		}
		if leaderless > usualPromise+2*soon {
			t.Errorf("there is no leader for %v", leaderless)
		}
	}
}

// A member that has voted gives its candidate the time to win, even if its own turn was to come before.
func TestVoterLetsItsCandidateWin(t *testing.T) {
	g := newTeam(t, 5)
	leader := g.elected()
	g.pass(time.Second)
	term, others := g.members[leader].replica.term, []uint64{}
	for _, id := range g.ids {
		if id != leader {
			others = append(others, id)
		}
	}
	voter := others[0]
	r := g.members[voter].replica
	g.cut = func(Message) bool { return true }
	for _, id := range g.ids {
		g.down[id] = id != voter
	}
	g.pass(usualPromise)
	before := r.Counts().Campaigns
	g.pass(5 * time.Millisecond)
	if r.Counts().Campaigns > before { // it had the first turn, so its next turn comes after all others
		g.pass(5 * time.Millisecond)
	}
	before = r.Counts().Campaigns
	g.claimToHave(others[1], voter, raftpb.MsgPreVote, term+1, r.log.Last()-1)
	g.claimToHave(others[2], voter, raftpb.MsgVote, term+1, r.log.Last())
	g.pass(2 * TickInterval)
	if campaigns := r.Counts().Campaigns; campaigns > before || r.term != term+1 {
		t.Errorf("in term %d it campaigns %d times", r.term, campaigns-before)
	}
}

// Only the connection between one member and the leader is broken. The member campaigns, and does not depose the
// leader. Its campaigns do not delay the election when the leader is gone. The other follower keeps the leader: by
// its promise, or, where promises end between two heartbeats, because it hears the leader.
func TestBrokenConnectionDeposesNoLeader(t *testing.T) {
	for _, lease := range []time.Duration{900 * time.Millisecond, 300 * time.Millisecond, 50 * time.Millisecond} {
		g := newTeamOf(t, 3, func(c *Config) { c.MasterLease = lease })
		leader := g.elected()
		g.pass(time.Second)
		apart, r := g.follower(leader), g.members[leader].replica
		term := r.term
		g.cut = func(m Message) bool { return m.From == apart && m.To == leader || m.From == leader && m.To == apart }
		for range 100 {
			g.step(apart, Unreachable{Member: leader})
			if lease > TickInterval {
				g.write(leader, 25*time.Millisecond)
			}
			g.pass(25 * time.Millisecond)
		}
		if !r.Serving() || r.term != term {
			t.Errorf("promises of %v: a healthy leader was deposed in term %d, and it is %d", lease, term, r.term)
		}
		if g.members[apart].replica.Counts().Campaigns == 0 {
			t.Errorf("promises of %v: no member campaigns", lease)
		}
		g.cut = func(Message) bool { return false }
		g.afterHeartbeat(leader, 2*TickInterval)
		if _, leaderless := g.kill(leader); leaderless > usualPromise+soon {
			t.Errorf("promises of %v: there is no leader for %v", lease, leaderless)
		}
	}
}

// A member that knows that the leader has given up does not wait: neither until the leader has been silent for long,
// nor until its promise ends.
func TestReleaseBeginsTheElectionAtOnce(t *testing.T) {
	for name, timeOut := range map[string]func(g *team, leader uint64){
		"its disk fails": (*team).failDisk,
		"it leaves, and nobody takes over": func(g *team, leader uint64) {
			g.cut = func(m Message) bool { return m.Raft.GetType() == raftpb.MsgTimeoutNow }
			g.step(leader, Leave{ID: 1})
			g.step(leader, Unreachable{Member: g.members[leader].replica.transferee})
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newTeam(t, 3)
			leader := g.elected()
			g.pass(time.Second)
			g.afterHeartbeat(leader, 0)
			timeOut(g, leader)
			if _, leaderless := g.kill(leader); leaderless > soon {
				t.Errorf("there is no leader for %v", leaderless)
			}
		})
	}
}

// failDisk has a leader find out that its disk has failed.
func (g *team) failDisk(leader uint64) {
	g.t.Helper()
	g.slow = leader
	g.step(leader, Request{ID: 1, Command: put1("k", "v")})
	w := g.members[leader]
	effects := w.replica.Step(w.clock.Now(), Persisted{Sequence: w.writes[0].Sequence, Err: errors.New("the disk is broken")})
	if _, ok := effects[len(effects)-1].(Halt); !ok {
		g.t.Fatalf("it goes on: %+v", effects)
	}
	if w.replica.Authority().Holds(w.clock.Now()) {
		g.t.Error("it has authority")
	}
	g.perform(leader, effects)
	g.down[leader] = true
	g.rest()
}

// A request for a vote comes before the release of the leader. The member votes when the release comes.
func TestParkedBallotIsCastAtTheRelease(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.afterHeartbeat(leader, 0)
	var late *Message
	voter := g.follower(leader)
	g.cut = func(m Message) bool {
		if m.To == voter && m.From == leader && m.Raft == nil && m.Lease.Release != nil {
			late = &m
		}
		return m.To == voter && m.From == leader
	}
	g.failDisk(leader)
	g.pass(2 * TickInterval)
	w := g.members[voter]
	if parked := w.replica.grantor.Stats(w.clock.Now()).InParked; parked != 1 || late == nil {
		t.Fatalf("%d requests for votes wait, and the release is %+v", parked, late)
	}
	g.step(voter, Received{Message: *late, Incarnation: 0x100 + leader})
	if _, leaderless := g.kill(leader); leaderless > soon {
		t.Errorf("there is no leader for %v", leaderless)
	}
}

// A release of a former leader says nothing about the present one.
func TestOldReleaseDeposesNoLeader(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	term := g.members[old].replica.term
	g.pass(time.Second)
	next, _ := g.kill(old)
	g.crash(old, time.Second)
	g.pass(time.Second)
	now := g.members[next].replica.term
	for _, of := range []masterlease.Release{{Leader: old, Term: term, Epoch: 1}, {Leader: next, Term: term, Epoch: 1}, {Leader: old, Term: now, Epoch: 1}} {
		for _, id := range g.ids {
			r := g.members[id].replica
			before := r.Counts().Campaigns
			g.step(id, Received{Message: Message{From: old, To: id, Lease: masterlease.Header{Release: &of}}, Incarnation: 0x100 + old})
			if r.silent() || r.Counts().Campaigns != before {
				t.Errorf("member %d takes its leader for gone after %+v", id, of)
			}
		}
	}
	if again := g.elected(); again != next {
		t.Errorf("member %d leads, and not %d", again, next)
	}
}

// An isolated leader steps down after two election timeouts at the latest. Then all its requests are answered, and it
// takes on no more.
func TestIsolatedLeaderStepsDownInTime(t *testing.T) {
	for lag := time.Duration(0); lag < DefaultElectionTimeout; lag += 150 * time.Millisecond {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second + lag)
		g.cut = func(m Message) bool { return m.From == leader || m.To == leader }
		asked, r := uint64(0), g.members[leader].replica
		for passed := time.Duration(0); r.Serving(); passed += 50 * time.Millisecond {
			if passed > 2*DefaultElectionTimeout {
				t.Fatalf("%v: it still serves", lag)
			}
			asked += 2
			g.step(leader, Request{ID: 1000 + asked, Command: put1("k", "v")}, Read{ID: 1001 + asked})
			g.pass(50 * time.Millisecond)
		}
		for id := uint64(2); id <= asked; id += 2 {
			reply, ok := g.replyTo(leader, 1000+id).(Reply)
			if !ok || !errors.Is(reply.Err, ErrUnknownOutcome) && !errors.Is(reply.Err, ErrNoLeader) || g.replyTo(leader, 1001+id) == nil {
				t.Errorf("%v: put %d is answered by %+v, and the read by %+v", lag, id, reply, g.replyTo(leader, 1001+id))
			}
		}
	}
}
