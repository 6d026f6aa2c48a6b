package replica

import (
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Each test here names guards of what comes from other members, and fails if exactly one of them is removed.

// between are the kinds of messages that members of a cluster send each other.
var between = []raftpb.MessageType{
	raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp, raftpb.MsgVote, raftpb.MsgVoteResp,
	raftpb.MsgPreVote, raftpb.MsgPreVoteResp, raftpb.MsgSnap, raftpb.MsgTimeoutNow, raftpb.MsgReadIndex, raftpb.MsgReadIndexResp,
}

// Raft has messages that a member sends to itself alone: to campaign, to append what it proposes, or that its disk is
// done. None of them counts if it comes from another member.
func TestLocalMessagesFromPeersAreDropped(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	kinds := 0
	for number := range raftpb.MessageType_name {
		kind := raftpb.MessageType(number)
		if slices.Contains(between, kind) {
			continue
		}
		kinds++
		for _, to := range g.ids {
			w := g.members[to]
			from := to%3 + 1
			before, last := w.replica.raftState(), w.replica.log.Written()
			index := last + 1
			effects := w.step(Received{Incarnation: 0x100 + from, Message: Message{From: from, To: to, Raft: &raftpb.Message{
				Type: kind.Enum(), From: &from, To: &to, Term: new(w.replica.term), Index: &index, LogTerm: new(w.replica.term),
				Entries: []*raftpb.Entry{{Data: []byte("what no member proposes")}},
			}}})
			effects = append(effects, w.settle()...)
			if after := w.replica.raftState(); after != before || w.replica.log.Written() != last {
				t.Errorf("%v: member %d was %+v with %d entries, and is %+v with %d", kind, to, before, last, after, w.replica.log.Written())
			}
			for _, e := range effects {
				if s, ok := e.(Send); ok && s.Message.Raft != nil && s.Message.Raft.GetType() != raftpb.MsgHeartbeat {
					t.Errorf("%v: member %d sends %v", kind, to, s.Message.Raft)
				}
			}
		}
	}
	if kinds < 5 {
		t.Errorf("only %d kinds of messages were tried", kinds)
	}
	g.mustPut(leader)
}

// A member that has taken its leave does not campaign by order, however good the order is.
func TestMemberThatLeftIgnoresOrdersToCampaign(t *testing.T) {
	for _, left := range []bool{false, true} {
		g := newTeam(t, 3)
		leader := g.elected()
		g.pass(time.Second)
		id := g.follower(leader)
		w := g.members[id]
		w.replica.left = left
		term := w.replica.term
		release := masterlease.Release{Leader: leader, Term: term, Epoch: 1}
		effects := w.step(Received{Incarnation: 0x100 + leader, Message: Message{
			From: leader, To: id, Lease: masterlease.Header{Release: &release},
			Raft: &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &leader, To: &id, Term: &term},
		}})
		effects = append(effects, w.settle()...)
		if asks := sends(effects, raftpb.MsgVote) + sends(effects, raftpb.MsgPreVote); (asks > 0) == left {
			t.Errorf("a member that has left (%v) asks for %d votes", left, asks)
		}
	}
}

// What a follower forwards is bounded, and so is what a leader works at for others. A member that is refused gets an
// answer.
func TestForwardedRenewalsAreBounded(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	var events []Event
	for i := range maxForwarded + 5 {
		events = append(events, Renewal{ID: uint64(i + 1), Leases: []lessor.ID{7}})
	}
	refused := 0
	for _, effect := range g.members[follower].step(events...) {
		if e, ok := effect.(Renewed); ok && e.Leases[0].Err == ErrTooManyRequests {
			refused++
		}
	}
	if refused != 5 {
		t.Errorf("a follower refuses %d renewals, and should 5", refused)
	}

	r := g.members[leader].replica
	for i := range uint64(maxForwarded) { // they wait for something
		r.forwarded.came[otherIDs|1<<40|i] = origin{follower, i, 1}
	}
	r.effects = nil
	r.renewForOther(follower, message.ForwardedRenewal{Number: 1, Leases: []lessor.ID{7}})
	a := r.forwarded.answers[follower]
	if a == nil || len(a.renewed) != 1 || a.renewed[0].Leases[0].Err != ErrTooManyRequests {
		t.Errorf("a leader that works at %d renewals of others answers one more with %+v", maxForwarded, a)
	}
}

// forwardsOf are the renewals that a member sends on.
func forwardsOf(effects []Effect) (all []message.ForwardedRenewal) {
	for _, effect := range effects {
		if e, ok := effect.(Send); ok {
			all = append(all, e.Message.Renewals...)
		}
	}
	return all
}

// A renewal whose message was lost is sent again. If it is answered while it waits for a leader to be sent to, nothing
// of it is left to be sent.
func TestForwardedRenewalIsSentAgainUntilItIsAnswered(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	w := g.members[g.follower(leader)]
	sent := forwardsOf(w.step(Renewal{ID: 1, Leases: []lessor.ID{7}}))
	if len(sent) != 1 {
		t.Fatalf("sent %+v", sent)
	}
	w.clock.Advance((forwardPatience + 1) * TickInterval)
	if again := forwardsOf(w.step(Tick{})); len(again) != 1 || again[0].Number != sent[0].Number {
		t.Fatalf("sent again: %+v", again)
	}
	w.replica.forwardToNext() // as when its leader is gone
	w.replica.renewedByLeader(message.ForwardedRenewed{Number: sent[0].Number, Leases: []RenewedLease{{ID: 7, TTL: time.Second}}})
	if more := forwardsOf(w.step(Tick{})); len(more) != 0 {
		t.Errorf("sent after it was answered: %+v", more)
	}
}

// A follower that another member takes for the leader says that it is none, and sends nothing on.
func TestForwardedRenewalIsNotForwardedTwice(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	from := 6 - leader - follower
	effects := g.members[follower].step(Received{Incarnation: 0x100 + from, Message: Message{
		From: from, To: follower, Renewals: []message.ForwardedRenewal{{Number: 1, Leases: []lessor.ID{7}}},
	}})
	if all := forwardsOf(effects); len(all) != 0 {
		t.Errorf("sent on: %+v", all)
	}
	answered := false
	for _, effect := range effects {
		if e, ok := effect.(Send); ok && e.Message.To == from && len(e.Message.Renewed) == 1 {
			answered = e.Message.Renewed[0].Leases[0].Err == ErrNoLeader
		}
	}
	if !answered {
		t.Errorf("answered by %v", effects)
	}
}

// A process that is no member does not learn how this member knows others.
func TestStandingOfANonMemberIsNotAnswered(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[1]
	for _, from := range []uint64{1, 99} {
		w.replica.effects = nil
		w.replica.onStanding(from, message.Standing{Ask: true}, true)
		if len(w.replica.effects) != 0 {
			t.Errorf("member %x is answered with %v", from, w.replica.effects)
		}
	}
}

// Impossible first entries of terms that come with a snapshot prove nothing: only the snapshot's own mark counts.
func TestImpossibleTermsProveNoFork(t *testing.T) {
	at := raftlog.Mark{Index: 10, Term: 3}
	for what, test := range map[string]struct {
		starts []raftlog.Mark
		good   bool
	}{
		"rising":                 {[]raftlog.Mark{{Index: 1, Term: 1}, {Index: 4, Term: 2}, {Index: 9, Term: 3}}, true},
		"an index twice":         {[]raftlog.Mark{{Index: 1, Term: 1}, {Index: 1, Term: 2}, {Index: 9, Term: 3}}, false},
		"an index that falls":    {[]raftlog.Mark{{Index: 4, Term: 1}, {Index: 2, Term: 2}, {Index: 9, Term: 3}}, false},
		"a term twice":           {[]raftlog.Mark{{Index: 1, Term: 1}, {Index: 4, Term: 1}, {Index: 9, Term: 3}}, false},
		"a term that falls":      {[]raftlog.Mark{{Index: 1, Term: 2}, {Index: 4, Term: 1}, {Index: 9, Term: 3}}, false},
		"beyond the snapshot":    {[]raftlog.Mark{{Index: 1, Term: 1}, {Index: 11, Term: 3}}, false},
		"without the snapshot's": {[]raftlog.Mark{{Index: 1, Term: 1}, {Index: 4, Term: 2}}, false},
		"nothing":                {nil, false},
	} {
		data, err := proto.Marshal(raftlog.Terms(test.starts).Record())
		if err != nil {
			t.Fatal(err)
		}
		got := raftlog.SnapshotTerms(&raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: &at.Index, Term: &at.Term}})
		want := []raftlog.Mark{at}
		if test.good {
			want = test.starts
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", what, got)
		}
	}
}
