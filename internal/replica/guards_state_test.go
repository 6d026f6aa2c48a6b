package replica

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test here names guards of a member's state: what it starts from, what it installs, and when it counts as ready. It
// fails if exactly one of them is removed.

// A member that cannot install another's state halts. It goes on with neither state.
func TestFailedInstallationHalts(t *testing.T) {
	g, _, laggard := newTeamWithLaggard(t, 5)
	w := g.members[laggard]
	g.cut = func(message.Message) bool { return false }
	w.holdInstall, w.mayHalt = true, true
	for i := 0; w.held == nil; i++ {
		if i > 1000 {
			t.Fatal("nothing is to be installed")
		}
		g.pass(5 * time.Millisecond)
	}
	w.step(Installed{Sequence: w.held.Sequence, Err: errUnreadable})
	if !errors.Is(w.halted, errUnreadable) || w.replica.Serving() {
		t.Errorf("it goes on: %v", w.halted)
	}
	g.down[laggard] = true
}

// The term and the vote that come with a state are written with it.
func TestHardStateOfASnapshotIsWritten(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	hard := w.replica.hardAfter(&raftpb.Message{Term: new(uint64(9)), Vote: new(uint64(2)), Commit: new(uint64(7))})
	if hard.GetTerm() != 9 || hard.GetVote() != 2 || hard.GetCommit() != 7 {
		t.Errorf("written is %v", hard)
	}
}

// kept is a state that a test can tell from others.
type kept struct {
	State
	name string
}

// Each snapshot is installed with the state that came with it.
func TestSnapshotsAndStatesBelongTogether(t *testing.T) {
	snapshot := func(index uint64) *raftpb.Snapshot {
		return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: new(uint64(1))}}
	}
	r := new(Replica)
	r.arrived = []arrival{{raftlog.MarkOf(snapshot(5)), kept{name: "first"}}, {raftlog.MarkOf(snapshot(5)), kept{name: "second"}}, {raftlog.MarkOf(snapshot(6)), kept{name: "third"}}}
	for _, c := range []struct {
		index uint64
		want  string
	}{{5, "second"}, {5, "first"}, {6, "third"}} {
		if got := r.heeded(snapshot(c.index)); got == nil || got.(kept).name != c.want {
			t.Errorf("with the snapshot at %d comes %v and not the %s", c.index, got, c.want)
		}
	}
}

// A member is ready while it serves alone, or while its questions are answered, and never once it has left or halted.
func TestReadyMembersAnswer(t *testing.T) {
	later := clock.Instant{Raw: 9, Boot: 9}
	for what, c := range map[string]struct {
		r    Replica
		want clock.Instant
	}{
		"alone, and serves":      {Replica{identity: Header{MemberID: 1}, membership: membership{voters: []uint64{1}}, serving: true}, forever},
		"alone, and serves not":  {Replica{identity: Header{MemberID: 1}, membership: membership{voters: []uint64{1}}}, clock.Instant{}},
		"with others":            {Replica{membership: membership{voters: []uint64{1, 2, 3}}, health: health{until: later}}, later},
		"with others and halted": {Replica{membership: membership{voters: []uint64{1, 2, 3}}, health: health{until: later}, halted: true}, clock.Instant{}},
		"with others and left":   {Replica{membership: membership{voters: []uint64{1, 2, 3}, left: true}, health: health{until: later}}, clock.Instant{}},
	} {
		if got := c.r.Ready(); got != c.want {
			t.Errorf("a member %s is ready until %v", what, got)
		}
	}
}

// A probe has worked if all its questions were answered. A member that is not ready asks again soon.
func TestProbeWithARefusalHasNotWorked(t *testing.T) {
	r := &Replica{cfg: Config{ElectionTimeout: time.Second}, now: clock.Instant{Raw: 1e9, Boot: 1e9}}
	if got := r.probeInterval(); got != TickInterval {
		t.Errorf("a member that is not ready asks every %v", got)
	}
	id := uint64(probeIDs | 1)
	renewed := Renewed{ID: id, Leases: []RenewedLease{{Err: lessor.ErrNotFound}}}
	r.health.awaited = probeQuestions
	r.probed(Reply{ID: id, Err: ErrNoLeader})
	if r.probed(renewed); !r.health.refused || r.now.Before(r.health.until) {
		t.Error("a probe with a refusal makes the member ready")
	}
	r.health = health{awaited: probeQuestions}
	r.probed(ReadAt{ID: id})
	if r.probed(renewed); !r.now.Before(r.health.until) {
		t.Error("a probe that worked does not")
	}
	if got := r.probeInterval(); got != time.Second/probes {
		t.Errorf("a member that is ready asks every %v", got)
	}
}

// A halted member serves nothing, and gives up what it was only once.
func TestHaltedMemberServesNothing(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.mayHalt = true
	w.replica.haltWith(errUnreadable)
	if w.replica.Serving() {
		t.Error("it serves")
	}
	g := newTeam(t, 3)
	leader := g.members[g.elected()]
	g.pass(time.Second)
	leader.mayHalt = true
	leader.replica.haltWith(errUnreadable)
	if effects := leader.replica.Abandon(leader.clock.Now()); effects != nil {
		t.Errorf("it has still to do %v", effects)
	}
}

// While another state is being installed nothing is flushed into the database, and nobody is woken for work on it.
func TestNothingIsWrittenDuringAnInstallation(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	if r := w.do(1, claimOf(7, "n", false)); r.Err != nil {
		t.Fatal(r.Err)
	}
	r := w.replica
	key := record.NameKey("n")
	if !r.buffer.Has(key) {
		t.Fatal("nothing is buffered")
	}
	r.installing = true
	if err := r.Flush(); err != nil || !r.buffer.Has(key) {
		t.Errorf("it was flushed: %v", err)
	}
	wait := func() time.Duration {
		effects := w.emitted((*Replica).schedule)
		return effects[len(effects)-1].(WakeAt).Wait
	}
	if r.sweeping = true; wait() == 0 {
		t.Error("the member is woken for what it cannot do")
	}
	if r.installing = false; wait() != 0 {
		t.Error("the member is not woken though there are keys to be removed")
	}
	r.sweeping = false
}

// A command sees what earlier commands of its entry have stored.
func TestCommandsSeeWhatTheirEntryStored(t *testing.T) {
	r := applyingAnEntry(t, newWorld(t).serve())
	key := record.NameKey("n")
	record.Put(r.applying.writer.Batch(), key, &logpb.Name{Name: []byte("n"), Ended: 3})
	m := new(logpb.Name)
	if found, err := r.loadRecord(key, m); err != nil || !found || m.Ended != 3 {
		t.Errorf("found: %v, %+v, %v", found, m, err)
	}
}

// While keys of ended leases are still being removed, a claim looks for its own: a key that is there gives no token.
func TestClaimLooksForItsKeyWhileKeysAreRemoved(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	if !w.replica.surelyAbsent(7) {
		t.Fatal("a key may be there in an empty keyspace")
	}
	w.replica.sweeping = true
	if w.replica.surelyAbsent(7) {
		t.Error("its key is surely absent though keys are still removed")
	}
	w.replica.sweeping = false
}

// A time of day that nobody has told is not known.
func TestUnknownTimeOfDayIsZero(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	if got := w.replica.wallNow(); got != 0 {
		t.Errorf("it is %d", got)
	}
}

// A claim that is repeated while memory is short gets its answer: it takes no more of it.
func TestRepeatedClaimNeedsNoMemory(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	for id := range uint64(2) {
		if r := w.do(id+1, claimOf(7, "n", false)); r.Err != nil {
			t.Errorf("claim %d: %v", id+1, r.Err)
		}
		w.step(Memory{Short: true})
	}
}

// The proposals under way are bounded.
func TestProposalsAreBounded(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	r := w.replica
	for i := range uint64(maxProposed) {
		r.proposals[1<<40+i] = nil
	}
	w.step(Request{ID: 1, Command: putKey("k")})
	if len(r.proposals) != maxProposed || r.intake.Len() != 1 {
		t.Errorf("%d proposals are under way, and %d commands wait", len(r.proposals), r.intake.Len())
	}
	clear(r.proposals)
	w.step(Tick{})
	w.settle()
}

// A write settles a member if it is the oldest that is not reported, and no command waits for its end.
func TestOldestWriteSettles(t *testing.T) {
	r := &Replica{intake: intake.New()}
	if r.Settles(1) {
		t.Error("a write that is not under way settles")
	}
	r.persisting = []persisting{{Write: yield.Write{Sequence: 1}}, {Write: yield.Write{Sequence: 2}}}
	if !r.Settles(1) || r.Settles(2) {
		t.Error("the oldest write does not settle, or a later one does")
	}
	r.intake.AddOwn(putKey("k"))
	if r.Settles(1) {
		t.Error("a write settles though a command waits")
	}
}

// Members that answer are shown as active, and do not count as being sent a state.
func TestActiveMembersAreShown(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	w := g.members[leader]
	if w.replica.ships() {
		t.Error("a member is being sent a state")
	}
	down := g.follower(leader)
	active := func() (n int) {
		for _, m := range w.replica.Cluster(w.clock.Now()).Members {
			if m.Active {
				n++
			}
		}
		return n
	}
	if n := active(); n != 3 {
		t.Errorf("%d members are active", n)
	}
	g.down[down] = true
	g.pass(3 * time.Second)
	if n := active(); n != 2 {
		t.Errorf("without one %d members are active", n)
	}
	delete(g.down, down)
}

// A transaction is refused for want of memory or space only if it takes some.
func TestTransactionsThatTakeNothingAreAllowed(t *testing.T) {
	w := limitedWorld(t, SpaceLimits{MinFree: 1000})
	txn := func(ops ...keyspace.TxnOp) keyspace.TxnRequest { return keyspace.TxnRequest{Success: ops} }
	w.step(Memory{Short: true})
	if r := w.do(1, txn(putKey("k"), keyspace.RangeRequest{Key: []byte("k")})); r.Err != nil {
		t.Errorf("a put without a lease, while memory is short: %v", r.Err)
	}
	w.step(Memory{}, Space{Free: 1})
	if r := w.do(2, txn(keyspace.DeleteRequest{Key: []byte("k")}, keyspace.RangeRequest{Key: []byte("k")})); r.Err != nil {
		t.Errorf("a deletion, while space is short: %v", r.Err)
	}
}

// Only a physical compaction is answered when everything is removed. Another is when it is applied.
func TestCompactionIsAnsweredBeforeItsRemoval(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	for id := range uint64(4 * trimKeys) {
		w.do(id+1, putKey(fmt.Sprintf("k%d", id%(2*trimKeys))))
	}
	last := uint64(1 << 20)
	effects := w.step(Request{ID: last, Command: entry.Compact{Revision: w.replica.Store().Revision()}})
	for i := 0; w.replica.Store().CompactRevision() <= 0; i++ {
		if i > 100 {
			t.Fatal("nothing is compacted")
		}
		if len(w.writes) > 0 {
			effects = append(effects, w.report()...)
		} else {
			effects = append(effects, w.step(Tick{})...)
		}
	}
	if !w.replica.Store().Trimmable() {
		t.Fatal("everything is removed at once")
	}
	if got := errorsOf(effects, last); len(got) != 1 || got[0] != nil {
		t.Errorf("answered by %v", got)
	}
}

// A member that is gone is not being sent a state, whatever was under way.
func TestNoStateIsOnItsWayToAMemberThatIsGone(t *testing.T) {
	g, leader, laggard := newTeamWithLaggard(t, 7)
	r := g.members[leader].replica
	g.holdShips, g.cut = true, func(message.Message) bool { return false }
	for i := 0; !r.ships(); i++ {
		if i > 1000 {
			t.Fatal("no state is sent")
		}
		g.pass(5 * time.Millisecond)
	}
	g.down[laggard] = true
	if g.pass(3 * time.Second); r.ships() {
		t.Error("a state is on its way to a member that is gone")
	}
	delete(g.down, laggard)
	g.holdShips = false
	g.carryState(g.onTheWay[0])
	g.rest()
}

// The log that is kept for a member that lags behind is bounded in bytes, and never truncated where it has been already.
func TestLogForALaggardIsBounded(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.LogStep, c.LogKeep = 10, 1<<20 })
	leader := g.elected()
	g.pass(time.Second)
	laggard := g.follower(leader)
	g.cut = func(m message.Message) bool {
		return m.To == laggard && (m.Raft.GetType() == raftpb.MsgApp || m.Raft.GetType() == raftpb.MsgSnap)
	}
	r := g.members[leader].replica
	for range 2 * spareFactor * raftlog.MaxSteps {
		g.mustPut(leader)
		if n := r.log.Steps(); n > spareFactor*raftlog.MaxSteps+2 {
			t.Fatalf("the log has %d steps", n)
		}
		g.pass(5 * time.Millisecond)
	}
	if r.log.Truncated().Index == 0 {
		t.Fatal("the log was not truncated")
	}
	if upTo, due := r.spare(r.applied.Index, true); due && upTo <= r.log.Truncated().Index {
		t.Errorf("it is to be truncated at %d, and was at %d", upTo, r.log.Truncated().Index)
	}
	g.cut = func(message.Message) bool { return false }
}
