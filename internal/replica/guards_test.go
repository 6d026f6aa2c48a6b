package replica

import (
	"encoding/binary"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Each test here names one guard of this package, and fails if exactly that guard is removed. Without them the guards
// were covered by luck only: other guards hid their absence.

// voteOf returns the candidate that a member's answer grants its vote, 0 if no answer does.
func voteOf(effects []Effect) uint64 {
	for _, effect := range effects {
		if e, ok := effect.(Send); ok && e.Message.Raft.GetType() == raftpb.MsgVoteResp && !e.Message.Raft.GetReject() {
			return e.Message.To
		}
	}
	return 0
}

// A member that already knows a term votes in it. Its hard state changes in the vote alone, and that vote is on stable
// storage before the answer leaves: a member that forgets it could vote twice in one term.
func TestVoteInAKnownTermIsWrittenBeforeItIsAnswered(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	candidate := g.follower(leader)
	voter := 6 - leader - candidate
	w := g.members[voter]
	g.mustPut(leader)
	g.cut = func(Message) bool { return true }
	for range 400 { // the promise to the leader ends; only the voter's clock matters
		w.clock.Advance(5 * time.Millisecond)
	}
	w.step(Tick{})
	w.settle()

	// The first candidate lacks the newest entry, so the voter learns the term and refuses.
	term := w.replica.term + 5
	g.claimToHave(leader, voter, raftpb.MsgVote, term, w.replica.log.Last()-1)
	if hard := w.replica.log.HardState(); hard.GetTerm() != term || hard.GetVote() != 0 {
		t.Fatalf("the voter has %v, and should know term %d without a vote", hard, term)
	}

	last := w.replica.log.Last()
	lastTerm, err := w.replica.log.Term(last)
	if err != nil {
		t.Fatal(err)
	}
	ask := Received{Incarnation: 0x100 + candidate, Message: Message{From: candidate, To: voter, Raft: &raftpb.Message{
		Type: raftpb.MsgVote.Enum(), From: &candidate, To: &voter, Term: &term, Index: &last, LogTerm: &lastTerm,
	}}}
	if to := voteOf(w.step(ask)); to != 0 {
		t.Errorf("the vote for %d leaves before it is written", to)
	}
	if len(w.writes) == 0 {
		t.Fatal("the vote is not written")
	}
	if to := voteOf(w.settle()); to != candidate {
		t.Fatalf("the vote goes to %d instead of %d", to, candidate)
	}
	again := w.crashed(nil)
	again.start()
	defer again.close()
	if hard := again.replica.log.HardState(); hard.GetTerm() != term || hard.GetVote() != candidate {
		t.Errorf("after a power cut the voter has %v, and not its vote for %d in term %d", hard, candidate, term)
	}
}

func (g *team) mustPut(leader uint64) {
	g.t.Helper()
	g.requests++
	if reply := g.do(leader, g.requests, put1("k", "v")); reply.Err != nil {
		g.t.Fatal(reply.Err)
	}
}

// A member that installs another's state keeps the vote that it gave in that term.
func TestInstalledStateKeepsTheVote(t *testing.T) {
	g, leader, laggard := newTeamWithLaggard(t, 21)
	w := g.members[laggard]
	term, vote := w.replica.log.HardState().GetTerm(), w.replica.log.HardState().GetVote()
	if vote == 0 || term != g.members[leader].replica.term {
		t.Fatalf("the laggard voted for %d in term %d; the leader is of term %d", vote, term, g.members[leader].replica.term)
	}
	g.cut = func(Message) bool { return false }
	w.holdInstall = true
	for i := 0; w.held == nil; i++ {
		if i > 1000 {
			t.Fatal("nothing is to be installed")
		}
		g.pass(5 * time.Millisecond)
	}
	w.installNow() // and the power fails at once
	again := w.crashed(nil)
	again.start()
	defer again.close()
	if hard := again.replica.log.HardState(); hard.GetTerm() != term || hard.GetVote() != vote {
		t.Errorf("after the installation the member has %v, and not its vote for %d in term %d", hard, vote, term)
	}
	if again.replica.log.Last() <= term {
		t.Errorf("the log reaches to %d: nothing was installed", again.replica.log.Last())
	}
}

// G11: a member knows the data directories of the others after a restart, before it hears from any of them.
func TestPeersAreKnownAfterARestart(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	member := g.follower(leader)
	g.cut = func(Message) bool { return true }
	g.crash(member, 10*time.Millisecond)
	w := g.members[member]
	for _, id := range g.ids {
		if id == member {
			continue
		}
		if known := w.replica.peers[id]; known != 0x100+id {
			t.Errorf("member %d is known by %x instead of %x", id, known, 0x100+id)
		}
		before := w.replica.Counts().RejectedPeers
		w.step(Received{Incarnation: 0x999, Message: Message{From: id, To: member, Raft: &raftpb.Message{
			Type: raftpb.MsgHeartbeat.Enum(), From: new(id), To: new(member), Term: new(w.replica.term + 1),
		}}})
		w.settle()
		if after := w.replica.Counts().RejectedPeers; after != before+1 || w.replica.peers[id] != 0x100+id {
			t.Errorf("a message of member %d from another directory counts: %d refused, known by %x", id, after-before, w.replica.peers[id])
		}
	}
}

// T3: the leader's answers to renewals that a follower forwarded rest on its master lease. They carry its end, so that
// the driver drops them if the clock has passed it.
func TestAnswersToForwardedRenewalsRestOnTheMasterLease(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	for id := range lessor.ID(2) {
		if reply := g.do(leader, uint64(id)+1, entry.Grant{Lease: 7 + id, TTL: time.Minute}); reply.Err != nil {
			t.Fatal(reply.Err)
		}
	}
	follower := g.follower(leader)
	w := g.members[leader]
	effects := w.step(Received{Incarnation: 0x100 + follower, Message: Message{From: follower, To: leader,
		Renewals: []message.ForwardedRenewal{{Number: 1, Leases: []lessor.ID{7, 8}}}}})
	end := w.replica.Authority().End
	answers := 0
	for _, effect := range effects {
		e, ok := effect.(Send)
		if !ok || len(e.Message.Renewed) == 0 {
			continue
		}
		answers++
		if e.Authority != end {
			t.Errorf("the answer rests on %v, and the master lease ends at %v", e.Authority, end)
		}
		if Holds(e, func() clock.Instant { return end }) {
			t.Error("the answer leaves after the master lease has ended")
		}
	}
	if answers != 1 {
		t.Errorf("%d answers instead of 1: %v", answers, effects)
	}
}

// No two lives of a member use the same key for a ReadIndex round: an answer to a round of the earlier life would
// confirm a round of the present one.
func TestReadIndexRoundsDifferBetweenProcesses(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	keys := make(map[string]int)      // lives that used it
	lives := make(map[uint64][2]bool) // by the number of a round
	for life := range 2 {
		g.crash(follower, 10*time.Millisecond) // rounds of each life are numbered from the first
		g.sent = nil
		for range 50 {
			g.pass(TickInterval)
			g.requests++
			g.step(follower, Read{ID: g.requests})
		}
		used := make(map[string]bool)
		for _, m := range g.sent {
			if m.From == follower && m.Raft.GetType() == raftpb.MsgReadIndex {
				used[string(m.Raft.GetEntries()[0].GetData())] = true
			}
		}
		for key := range used {
			number := binary.BigEndian.Uint64([]byte(key[len(key)-8:]))
			seen := lives[number]
			seen[life] = true
			lives[number] = seen
			if keys[key]++; keys[key] > 1 {
				t.Errorf("both lives have a round with the key %x", key)
			}
		}
	}
	both := 0
	for _, seen := range lives {
		if seen[0] && seen[1] {
			both++
		}
	}
	if both < 10 {
		t.Errorf("only %d rounds have the same number in both lives; nothing was compared", both)
	}
}

// L6: the master lease of a leader is not usable before an entry of its own term is applied, even though the others
// have promised: what an earlier leader acknowledged may not be applied here yet.
func TestPromisesAloneAreNoAuthority(t *testing.T) {
	g := newTeam(t, 3)
	old := g.elected()
	g.pass(time.Second)
	g.cut = func(m Message) bool { return m.Raft.GetType() == raftpb.MsgAppResp } // so that nothing commits
	g.down[old] = true
	led := 0
	for range 600 {
		g.pass(5 * time.Millisecond)
		for _, id := range g.ids {
			w := g.members[id]
			if id == old || !w.replica.leading {
				continue
			}
			if w.replica.Authority().Holds(w.clock.Now()) {
				t.Fatalf("member %d has authority in term %d, of which it has applied nothing", id, w.replica.term)
			}
			for _, m := range g.sent {
				if m.To == id && m.Lease.Grant != nil && m.Lease.Grant.Term == w.replica.term {
					led++
				}
			}
		}
		g.sent = nil
	}
	if led == 0 {
		t.Error("no member led with a promise of another and nothing applied")
	}
}

// F2 (docs/design/master-leases.md): a request for a longer promise than any on record promises nothing, and this
// member may still ask for votes. Once the record is on the disk, the repeated request is promised. From then on
// earlier requests for votes get this member no votes, and it asks for none.
func TestPromiseIsGivenOnlyOnceItIsOnTheDisk(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.Eager = true })
	leader := g.elected()
	g.pass(time.Second)
	id := g.follower(leader)
	w, term := g.members[id], g.members[leader].replica.term
	g.cut = func(Message) bool { return true }

	const long = 5 * time.Second
	g.members[leader].clock.Advance(time.Millisecond)
	request := Message{From: leader, To: id, Raft: &raftpb.Message{
		Type: raftpb.MsgHeartbeat.Enum(), From: &leader, To: &id, Term: &term,
	}}
	request.Lease.Request = &masterlease.Request{
		Term: term, Epoch: 1, Stamp: g.members[leader].clock.Now(), Duration: long, Drift: clock.DefaultDrift,
	}
	asks := Received{Message: request, Incarnation: 0x100 + leader}
	if grant := grantOf(w.step(asks)); grant != nil && grant.Duration == long {
		t.Fatalf("promised before it is on record: %+v", grant)
	}
	if len(w.writes) != 1 {
		t.Fatalf("%d writes are under way, and the record of the promise should be", len(w.writes))
	}
	w.settle()

	asked := 0
	for i := 0; asked == 0; i++ {
		if i > 1000 {
			t.Fatal("the earlier promise has ended, and it does not campaign")
		}
		w.clock.Advance(5 * time.Millisecond)
		asked = sends(w.step(Tick{}), raftpb.MsgPreVote)
	}

	heard := w.clock.Now()
	grant := grantOf(w.step(asks))
	if grant == nil || grant.Duration != long || grant.Reading != heard || grant.Echo != request.Lease.Request.Stamp {
		t.Fatalf("the request came again, and the answer says %+v", grant)
	}
	others := []uint64{leader, 6 - leader - id}
	ends := heard.Add(grant.Drift.GrantPromise(long))
	for now := heard; !now.After(ends); now = w.clock.Now() {
		events := []Event{Tick{}}
		for _, other := range others { // they would elect it
			next := term + 1
			events = append(events, Received{Incarnation: 0x100 + other, Message: Message{From: other, To: id, Raft: &raftpb.Message{
				Type: raftpb.MsgPreVoteResp.Enum(), From: &other, To: &id, Term: &next,
			}}})
		}
		effects := append(w.step(events...), w.settle()...)
		if n := sends(effects, raftpb.MsgPreVote) + sends(effects, raftpb.MsgVote); n > 0 || w.replica.term != term {
			t.Fatalf("%v after the promise, which ends %v after it, it sends %d requests for votes and is in term %d, after term %d",
				now.Elapsed(heard), ends.Elapsed(heard), n, w.replica.term, term)
		}
		w.clock.Advance(10 * time.Millisecond)
	}
	if sends(w.step(Tick{}), raftpb.MsgPreVote) == 0 {
		t.Error("the promise has ended, and it does not campaign")
	}
}

// grantOf returns the promise that a member sends, nil if there is none.
func grantOf(effects []Effect) *masterlease.Grant {
	for _, effect := range effects {
		if e, ok := effect.(Send); ok && e.Message.Lease.Grant != nil {
			return e.Message.Lease.Grant
		}
	}
	return nil
}

// sends counts messages of raft of one kind that a member sends.
func sends(effects []Effect, kind raftpb.MessageType) (n int) {
	for _, effect := range effects {
		if e, ok := effect.(Send); ok && e.Message.Raft != nil && e.Message.Raft.GetType() == kind {
			n++
		}
	}
	return n
}
