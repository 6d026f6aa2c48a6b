package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test here names guards of what answers requests and questions, and fails if exactly one of them is removed.

// emitted returns what a call of a replica's own function emits.
func (w *world) emitted(call func(r *Replica)) []Effect {
	w.replica.effects = nil
	call(w.replica)
	effects := lasting(w.replica.effects)
	w.replica.effects = nil
	return effects
}

// errorsOf returns the errors by which effects answer a request.
func errorsOf(effects []Effect, request uint64) (all []error) {
	for _, effect := range effects {
		switch e := effect.(type) {
		case Reply:
			if e.ID == request {
				all = append(all, e.Err)
			}
		case Renewed:
			for _, lease := range e.Leases {
				if e.ID == request {
					all = append(all, lease.Err)
				}
			}
		}
	}
	return all
}

// A member that has left takes on no command and no question, though it is the cluster's only one or still follows.
func TestMemberThatLeftRefusesAtOnce(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.replica.left, w.replica.serving = true, false
	for request, event := range map[uint64]Event{1: Request{ID: 1, Command: putKey("k")}, 2: Read{ID: 2}, 3: Inspection{ID: 3, Query: ListLeases{}}, 4: Renewal{ID: 4, Leases: []lessor.ID{7}}} {
		if got := errorsOf(w.step(event), request); len(got) != 1 || got[0] == nil {
			t.Errorf("%T is answered by %v", event, got)
		}
	}
	if n := w.replica.Waiting(); n != 0 {
		t.Errorf("%d requests wait", n)
	}
}

// What lacks space is answered once and changes nothing.
func TestRefusedForSpaceIsNotCarriedOut(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{MinFree: 1000})
	w.step(Space{Free: 999})
	before := w.replica.Store().Revision()
	effects := append(w.step(Request{ID: 1, Command: putKey("k")}), w.settle()...)
	if got := errorsOf(effects, 1); len(got) != 1 || !errors.Is(got[0], ErrNoSpace) {
		t.Errorf("answered by %v", got)
	}
	if after := w.replica.Store().Revision(); after != before {
		t.Error("it was carried out all the same")
	}
}

// An elected leader that does not serve yet keeps an inspection until it does: nobody else leads.
func TestInspectionWaitsForTheLeaderToServe(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[g.elected()]
	w.replica.serving = false
	effects := w.emitted(func(r *Replica) { r.question(Inspection{ID: 1, Query: ListLeases{}}) })
	if len(effects) != 0 || len(w.replica.parked) != 1 {
		t.Errorf("answered by %v, and %d wait", effects, len(w.replica.parked))
	}
	w.replica.parked, w.replica.serving = nil, true
}

// A question that waits for a newer state waits until that is applied.
func TestLaggingQuestionWaitsForItsIndex(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	r := w.replica
	r.lagging = []parked{{Read{ID: 1}, r.now.Add(time.Second), r.applied.Index + 1}}
	if effects := w.emitted((*Replica).answerLagging); len(effects) != 0 || len(r.lagging) != 1 {
		t.Errorf("answered before the state is new enough: %v", effects)
	}
	r.lagging[0].index = r.applied.Index
	if effects := w.emitted((*Replica).answerLagging); len(effects) != 1 || len(r.lagging) != 0 {
		t.Errorf("answered by %v when it is", effects)
	}
}

// Questions that wait for a member to serve are refused as soon as it no longer leads.
func TestParkedQuestionsAreRefusedByAFollower(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[g.follower(g.elected())]
	list := []parked{{event: Read{ID: 1}, until: w.replica.now.Add(time.Hour)}}
	var left []parked
	effects := w.emitted(func(r *Replica) { left = r.timeOut(list) })
	if got := errorsOf(effects, 1); len(got) != 1 || got[0] != ErrNoLeader || len(left) != 0 {
		t.Errorf("answered by %v, and %d still wait", got, len(left))
	}
}

// A renewal that waits for the end of its lease hears why it ended.
func TestRenewalThatWaitedHearsWhyTheLeaseEnded(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	claim := claimOf(7, "n", false)
	claim.TTL = time.Second
	if r := w.do(1, claim); r.Err != nil {
		t.Fatal(r.Err)
	}
	for i := 0; !ending(w.replica, 7) || len(w.writes) == 0; i++ {
		if i > 1000 {
			t.Fatal("the lease never ends")
		}
		w.clock.Advance(TickInterval / 2)
		w.step(Tick{})
		if !ending(w.replica, 7) {
			w.settle()
		}
	}
	effects := append(w.step(Renewal{ID: 2, Leases: []lessor.ID{7}}), w.settle()...)
	var ended *ownership.EndedError
	if got := errorsOf(effects, 2); len(got) != 1 || !errors.As(got[0], &ended) || ended.Why != ownership.WhyExpired {
		t.Errorf("answered by %v", got)
	}
}

// A renewal that is tried again and still cannot be decided goes on waiting. It gets no answer without a lease's length.
func TestUndecidedRenewalGoesOnWaiting(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, entry.Grant{Lease: 7, TTL: time.Second})
	r := w.replica
	for i := 0; !ending(r, 7); i++ {
		if i > 1000 {
			t.Fatal("the lease never ends")
		}
		if len(w.writes) > 0 {
			w.settle()
		}
		w.clock.Advance(TickInterval / 2)
		w.step(Tick{})
	}
	w.step(Renewal{ID: 2, Leases: []lessor.ID{7}})
	if effects := w.emitted(func(r *Replica) { r.settle([]lessor.ID{7}) }); len(effects) != 0 || r.waiters != 1 {
		t.Errorf("%d wait, and these are answered: %v", r.waiters, effects)
	}
	if got := errorsOf(w.settle(), 2); len(got) != 1 || !errors.Is(got[0], lessor.ErrNotFound) {
		t.Errorf("answered by %v when the lease has ended", got)
	}
}

func ending(r *Replica, id lessor.ID) bool {
	lease, ok := r.lessor.Lookup(id)
	return ok && lease.Ending
}

// A leader that has started keeps history for the retention from then on: it does not know how old revisions are. A
// member that does not serve proposes nothing.
func TestHistoryIsKeptAfterAStart(t *testing.T) {
	w := newWorldOf(t, func(w *world) { w.retention = time.Minute })
	w.serve()
	for id := range uint64(9) {
		w.do(id+1, putKey("k"))
	}
	again := w.crashed(nil)
	w.close()
	again.start()
	defer again.close()
	again.serve()
	again.advance(30 * time.Second)
	if compacted := again.replica.Store().CompactRevision(); compacted > 0 {
		t.Errorf("after half the retention history is compacted to %d", compacted)
	}
	again.advance(40 * time.Second)
	if compacted := again.replica.Store().CompactRevision(); compacted <= 0 {
		t.Error("after more than the retention nothing is compacted")
	}
	again.do(20, putKey("k"))
	again.advance(20 * time.Second)
	again.replica.serving = false
	again.clock.Advance(2 * time.Minute)
	again.replica.now = again.clock.Now()
	again.replica.retireHistory()
	if n := again.replica.intake.Len(); n != 0 {
		t.Errorf("a member that does not serve has %d commands to propose", n)
	}
}

// Of the answers that wait for a round only those whose time is over are given up.
func TestOnlyLateAnswersAreGivenUp(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	now := w.replica.now
	list := []unconfirmed{{ReadAt{ID: 1}, now.Add(-1)}, {ReadAt{ID: 2}, now.Add(time.Second)}}
	var left []unconfirmed
	effects := w.emitted(func(r *Replica) { left = r.stillAwaited(list) })
	if len(left) != 1 || len(errorsOf(effects, 1)) != 1 || len(errorsOf(effects, 2)) != 0 {
		t.Errorf("%d still wait, and these are given up: %v", len(left), effects)
	}
}

// A leader begins no round before it serves: what it would answer was not read from its state.
func TestNoRoundBeforeTheLeaderServes(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[g.elected()]
	r := w.replica
	r.confirming.waiting = []unconfirmed{{ReadAt{ID: 1}, r.now.Add(time.Second)}}
	r.serving = false
	if r.confirm(); r.confirming.key != "" {
		t.Error("a round has begun")
	}
	r.serving = true
	if r.confirm(); r.confirming.key == "" {
		t.Error("no round begins when it serves")
	}
}

// A question between members without its key is no question.
func TestReadIndexNeedsOneKey(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	from := g.follower(leader)
	for _, keys := range [][]*raftpb.Entry{nil, {{Data: []byte("a")}}, {{Data: []byte("a")}, {Data: []byte("b")}}} {
		m := &raftpb.Message{Type: raftpb.MsgReadIndex.Enum(), From: &from, To: &leader, Entries: slices.Clone(keys)}
		if got := g.members[leader].replica.answerReadIndex(m); got != (len(keys) == 1) {
			t.Errorf("with %d keys: answered is %v", len(keys), got)
		}
	}
}
