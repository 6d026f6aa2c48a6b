package replica

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// Each test of this file checks guards of this package, and fails if exactly one of them is removed. The guards are about
// what may leave before a write, which answer belongs to which request, and what is refused.

// An append that comes twice is written once. The answer to the second acknowledges the same entries, so it waits for
// the write of the first.
func TestAnswerToARepeatedAppendWaitsForTheWrite(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	id := g.follower(leader)
	w := g.members[id]
	var appended *Message
	g.cut = func(m Message) bool {
		if m.To == id && m.Raft.GetType() == raftpb.MsgApp && len(m.Raft.GetEntries()) > 0 {
			appended = &m
			return true
		}
		return false
	}
	g.mustPut(leader)
	if appended == nil {
		t.Fatal("nothing was appended")
	}
	asks := Received{Message: *appended, Incarnation: 0x100 + leader}
	last := appended.Raft.GetEntries()[len(appended.Raft.GetEntries())-1].GetIndex()
	acknowledged := func(effects []Effect) bool {
		for _, effect := range effects {
			if e, ok := effect.(Send); ok && e.Message.Raft.GetType() == raftpb.MsgAppResp && !e.Message.Raft.GetReject() && e.Message.Raft.GetIndex() >= last {
				return true
			}
		}
		return false
	}
	for i := range 3 {
		if acknowledged(w.step(asks)) {
			t.Errorf("append %d is acknowledged before it is written", i+1)
		}
	}
	if len(w.writes) != 1 {
		t.Fatalf("%d writes", len(w.writes))
	}
	if !acknowledged(w.settle()) {
		t.Error("it is never acknowledged")
	}
}

// Only the answer to the present round confirms it. One to an earlier round of this life, which was given up because it
// was late, says nothing of the questions that came after it.
func TestLateAnswerConfirmsNoOtherRound(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	id := g.follower(leader)
	w := g.members[id]
	g.cut = func(m Message) bool { return m.From == id || m.To == id }
	w.step(Read{ID: 1})
	first := w.replica.confirming.key
	w.clock.Advance(roundPatience * TickInterval)
	effects := w.step(Tick{}, Read{ID: 2})
	second := w.replica.confirming.key
	if first == "" || second == "" || first == second {
		t.Fatalf("the rounds have the keys %x and %x", first, second)
	}
	answer := func(key string) {
		w.replica.effects = w.replica.effects[:0]
		w.replica.confirmed(raft.ReadState{Index: w.replica.applied.Index, RequestCtx: []byte(key)})
		effects = lasting(w.replica.effects)
	}
	if answer(first); len(effects) != 0 || w.replica.confirming.key != second {
		t.Errorf("a late answer confirmed a round: %v", effects)
	}
	if answer(second); len(effects) == 0 || w.replica.confirming.key != "" {
		t.Errorf("the answer to the round confirms nothing: %v", effects)
	}
}

// A claim joins another one in flight only if it is the same in everything.
func TestDifferentClaimOfALeaseIsNotJoined(t *testing.T) {
	claim := ownership.Claim{Lease: 7, TTL: time.Second, Name: "n", Holder: []byte("h")}
	w := newWorld(t).serve()
	defer w.close()
	other := claim
	other.Name = "m"
	effects := w.step(Request{ID: 1, Command: put1("before", "v")}) // so that what comes next waits for the disk
	effects = append(effects, w.step(Request{ID: 2, Command: claim}, Request{ID: 3, Command: other})...)
	effects = append(effects, w.settle()...)
	if r := w.replyTo(2, effects); r.Err != nil {
		t.Error(r.Err)
	}
	if r := w.replyTo(3, effects); r.Err == nil {
		t.Errorf("a claim of another name under the same lease is answered with %+v", r.Result)
	}
}

// The queue is full once its commands take much memory, however few they are.
func TestQueueIsBoundedInBytes(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.step(Request{ID: 1, Command: putKey("slow")}) // its write is not reported
	value := []byte(strings.Repeat("v", 1<<20))
	taken := 0
	for i := range 2 * intake.MaxBytes >> 20 {
		counts := tally(w.step(Request{ID: uint64(10 + i), Command: keyspace.PutRequest{Key: []byte("k"), Value: value}}))
		if counts[ErrTooManyRequests] == 0 {
			taken++
		}
	}
	if most := intake.MaxBytes>>20 + 1; taken > most || taken < most/2 {
		t.Errorf("%d commands of a MiB are taken on, and at most %d should be", taken, most)
	}
}

// A member that has taken its leave does not begin to serve, though the first entry of its term is applied afterwards.
func TestMemberThatLeftDoesNotBeginToServe(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	w.step(Tick{})
	for !w.replica.leading { // its vote for itself is to be written first
		w.report()
	}
	if w.replica.Serving() || len(w.writes) == 0 {
		t.Fatal("it serves before the first entry of its term is written")
	}
	w.replica.left = true
	w.settle()
	if w.replica.Serving() {
		t.Error("it serves")
	}
}

// A repeated claim is answered from memory only by a leader that serves and has applied all that is committed: another
// member may have shown what comes after it.
func TestLaggingLeaderAnswersNoRepeatedClaim(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	claim := claimOf(7, "n", false)
	if r := g.do(leader, 1, claim); r.Err != nil {
		t.Fatal(r.Err)
	}
	r := g.members[leader].replica
	answers := func() bool {
		r.effects = nil
		return r.answerClaim(2, claim)
	}
	if !answers() {
		t.Fatal("it is not answered from memory at all")
	}
	if r.applied.Index--; answers() {
		t.Error("answered by a leader that is behind")
	}
	r.applied.Index++
	if r.serving = false; answers() {
		t.Error("answered by a member that does not serve")
	}
	r.serving = true
}

// Answers that wait to be confirmed are bounded, like everything else that waits.
func TestUnconfirmedAnswersAreBounded(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	r := g.members[leader].replica
	for id := range uint64(intake.MaxQueue + 3) {
		r.effects = nil
		r.confirmLater(ReadAt{ID: id + 1})
		refused := tally(lasting(r.effects))[ErrTooManyRequests] == 1
		if refused != (id >= intake.MaxQueue) {
			t.Fatalf("of %d answers that wait the last is refused: %v", id+1, refused)
		}
	}
}

// A member that has taken its leave gives no vote, also not one that it was asked for before.
func TestMemberThatLeftGivesNoParkedVote(t *testing.T) {
	for _, left := range []bool{false, true} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		candidate := g.follower(leader)
		voter := 6 - leader - candidate
		w := g.members[voter]
		g.cut = func(Message) bool { return true }
		g.sent = nil
		g.askForVote(candidate, voter, raftpb.MsgPreVote, w.replica.term+1)
		if sent := len(g.sent); sent != 0 {
			t.Fatalf("%d messages while a promise binds", sent)
		}
		w.replica.left = left
		answered := 0
		for range 400 {
			w.clock.Advance(5 * time.Millisecond)
			effects := append(w.step(Tick{}), w.settle()...)
			answered += sends(effects, raftpb.MsgPreVoteResp)
		}
		if (answered > 0) == left {
			t.Errorf("a member that has left (%v) gave %d votes", left, answered)
		}
	}
}

// An order to hand over is answered although no member takes over. A hand-over by the leader's own decision is
// answered to no client.
func TestFailedHandOverIsAnswered(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	g.cut = func(m Message) bool {
		return m.Raft.GetType() == raftpb.MsgVoteResp || m.Raft.GetType() == raftpb.MsgPreVoteResp
	}
	g.step(leader, HandOver{ID: 2, To: g.follower(leader)})
	g.pass(5 * time.Second)
	if reply, ok := g.replyTo(leader, 2).(Reply); !ok || reply.Err == nil {
		t.Errorf("answered by %+v, %v", reply, ok)
	}
	r := g.members[leader].replica
	r.effects = nil
	r.handing = r.newHanding(0)
	if r.answerHandOver(nil); len(r.effects) != 0 || r.handing != nil {
		t.Errorf("a hand-over without an order is answered by %v", r.effects)
	}
}
