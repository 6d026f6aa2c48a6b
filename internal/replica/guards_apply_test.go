package replica

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// Each test here names guards of what applies entries and of the queues in front of that, and fails if exactly one of
// them is removed.

// The memory of a claim that was asked for twice carries no request over to the next claim.
func TestRepliesOfAClaimGoToItsOwnRequests(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	claim := claimOf(7, "n", false)
	w.step(Request{ID: 1, Command: claim}, Request{ID: 2, Command: claim})
	w.settle()
	effects := append(w.step(Request{ID: 3, Command: claimOf(8, "m", false)}), w.settle()...)
	for _, effect := range effects {
		if r, ok := effect.(Reply); ok && r.ID != 3 {
			t.Errorf("request %d is answered again: %+v", r.ID, r)
		}
	}
	w.replyTo(3, effects)
}

// Each request for one claim gets one answer, also those beyond the bound of how many may join it.
func TestEachRequestForAClaimIsAnsweredOnce(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	var events []Event
	const requests = 200
	for id := range uint64(requests) {
		events = append(events, Request{ID: id + 1, Command: claimOf(7, "n", false)})
	}
	effects := append(w.step(events...), w.settle()...)
	refused := 0
	for id := range uint64(requests) {
		got := errorsOf(effects, id+1)
		if len(got) != 1 {
			t.Fatalf("request %d is answered by %v", id+1, got)
		}
		if got[0] != nil {
			refused++
		}
	}
	if refused == 0 || refused == requests {
		t.Errorf("of %d requests %d are refused", requests, refused)
	}
}

// A leader that has as many ends under way as it may have is not woken for more.
func TestLeaderWithEnoughExpiriesIsNotWokenForMore(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Second})
	r := w.replica
	if _, ok := r.untilDue(); !ok {
		t.Fatal("nothing is due")
	}
	for r.intake.HasRoomForExpiries(r.now) {
		r.intake.AddExpiry(r.now, entry.Expire{{}})
	}
	if wait, ok := r.untilDue(); ok {
		t.Errorf("more ends are due after %v", wait)
	}
}

// applyingAnEntry has a replica begin a batch, as apply does, for a test that calls what comes below that.
func applyingAnEntry(t *testing.T, w *world) *Replica {
	r := w.replica
	r.batch.writer = r.store.Begin(r.db.NewBatch())
	r.applying = &r.batch
	t.Cleanup(func() {
		r.applying = nil
		r.reuse(r.batch.writer.Batch())
		w.close()
	})
	return r
}

// A member that applies an entry which no version writes would have another state than those that refuse it.
func TestEntriesThatNobodyWritesAreDamage(t *testing.T) {
	r := applyingAnEntry(t, newWorld(t).serve())
	change := &raftpb.Entry{Type: raftpb.EntryConfChange.Enum(), Index: new(r.applied.Index + 1), Term: new(r.term)}
	if err := r.applyEntry(change); !isDamage(err) {
		t.Errorf("a change of the members was applied: %v", err)
	}
	put, err := proto.Marshal(&logpb.Command{Op: &logpb.Command_Put{Put: &logpb.Put{Key: []byte("k")}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.applyNow(append(put, 0xff), nil, 0, r.term); !isDamage(err) {
		t.Errorf("a command with garbage behind it was applied: %v", err)
	}
}

// A leader serves from the first entry of its own term on. That of an earlier leader, which it may apply after its
// election, shows nothing of what was committed in between.
func TestFirstEntryOfAnEarlierTermIsNoLeadership(t *testing.T) {
	r := applyingAnEntry(t, newWorld(t).serve())
	r.leadershipTerm, r.term = r.term-1, r.term+1
	r.beginLeadership(&raftpb.Entry{Index: new(r.applied.Index + 1), Term: new(r.term - 1)})
	if r.applying.promoted {
		t.Error("the entry of an earlier term made it a leader")
	}
}

// Raft leaves an empty entry in place of a change of membership that it refuses. It begins no second leadership.
func TestSecondEmptyEntryBeginsNoLeadership(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	before := w.replica.Lessor().Leaderships()
	if err := w.replica.raft.Propose(nil); err != nil {
		t.Fatal(err)
	}
	applied := w.replica.applied.Index
	w.step(Tick{})
	w.settle()
	if w.replica.applied.Index != applied+1 {
		t.Fatal("the entry was not applied")
	}
	if after := w.replica.Lessor().Leaderships(); len(after) != len(before) {
		t.Errorf("leaderships %v became %v", before, after)
	}
}

// An entry with the number of an own proposal, which another leader wrote or this one in another term, answers nobody.
func TestProposalIsAnsweredByItsOwnEntryOnly(t *testing.T) {
	r := &Replica{leading: true, term: 5, intake: intake.New(), proposals: map[uint64][]intake.Pending{7: {{ID: 1}}}}
	if waiting := r.takeProposal(4, 7); waiting != nil || len(r.proposals) != 1 {
		t.Error("an entry of an earlier term took the proposal")
	}
	r.leading = false
	if waiting := r.takeProposal(5, 7); waiting != nil || len(r.proposals) != 1 {
		t.Error("a member that does not lead took the proposal")
	}
	r.leading = true
	if waiting := r.takeProposal(5, 7); len(waiting) != 1 || len(r.proposals) != 0 {
		t.Error("its own entry did not take the proposal")
	}
}

// What only Step can do Answer leaves to it: a leader that is behind what is committed answers nothing from memory.
func TestAnswerFromMemoryNeedsANewState(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	w := g.members[leader]
	ask := func() bool {
		_, ok := w.replica.Answer(w.clock.Now(), Read{ID: 1})
		return ok
	}
	if !ask() {
		t.Fatal("a leader with a valid lease does not answer")
	}
	if w.replica.applied.Index--; ask() {
		t.Error("answered by a leader that is behind")
	}
	w.replica.applied.Index++
}
