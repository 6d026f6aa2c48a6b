package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
)

// of makes a member of the team say in its messages that it understands a version only.
func (g *team) of(member uint64, v gate.Version) {
	g.rewrite = func(m *Message) {
		if m.From == member && m.Raft != nil {
			m.Level = uint32(v)
		}
	}
}

// states fails the test unless each member of the team has applied this statement.
func (g *team) states(want gate.State) {
	g.t.Helper()
	for _, id := range g.ids {
		if got := g.members[id].replica.Versions(); got != want {
			g.t.Errorf("member %d: %+v, want %+v", id, got, want)
		}
	}
}

// The cluster version follows the oldest member up and down, in the log, without a request of a client. The version in use
// never falls.
func TestClusterVersionRisesByItself(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	old := g.follower(leader)
	g.pass(time.Second)
	g.states(gate.State{Cluster: gate.Newest})
	g.of(old, gate.Marks)
	g.pass(time.Second)
	g.states(gate.State{Cluster: gate.Marks})
	g.rewrite = nil
	g.pass(time.Second)
	g.states(gate.State{Cluster: gate.Newest})
	g.of(old, gate.Marks)
	g.pass(time.Second)
	g.states(gate.State{Cluster: gate.Marks})
	if r := g.order(leader, 1, Request{ID: 1, Command: ownership.Finish{Name: "n", Lease: 7}}); !errors.Is(r.Err, ownership.ErrLost) {
		t.Error(r.Err)
	}
	g.rewrite = nil
	g.pass(time.Second)
	g.states(gate.State{Cluster: gate.Newest, InUse: gate.Marks})
	before := g.members[leader].replica.Last()
	g.pass(time.Second)
	if after := g.members[leader].replica.Last(); after != before {
		t.Errorf("the log grew from %d to %d entries although nothing changed", before, after)
	}
	w := g.members[leader]
	if err := w.reopened(); err != nil || w.replica.Versions() != (gate.State{Cluster: gate.Newest, InUse: gate.Marks}) {
		t.Errorf("after a start: %+v, %v", w.replica.Versions(), err)
	}
}

// A transaction that members of earlier versions would refuse when they apply it is not written before all know it.
func TestLargeTransactionWaitsUntilAllMembersKnowIt(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	usual := keyspace.TxnRequest{Success: make([]keyspace.TxnOp, keyspace.UsualTxnOps)}
	for i := range usual.Success {
		usual.Success[i] = keyspace.PutRequest{Key: fmt.Appendf(nil, "k%03d", i)}
	}
	large := usual
	large.Success = append(slices.Clone(usual.Success), keyspace.PutRequest{Key: []byte("more")})
	g.of(g.follower(leader), gate.LargeTxns-1)
	g.pass(time.Second)
	if r := g.do(leader, 1, usual); r.Err != nil {
		t.Error(r.Err)
	}
	if r := g.do(leader, 2, large); !errors.Is(r.Err, ErrTooNew) {
		t.Errorf("a member does not know it: %v", r.Err)
	}
	g.rewrite = nil
	g.pass(time.Second)
	if in := g.members[leader].replica.Versions().InUse; in != 0 {
		t.Errorf("version %d is in use", in)
	}
	if r := g.do(leader, 3, large); r.Err != nil {
		t.Error(r.Err)
	}
	g.states(gate.State{Cluster: gate.Newest, InUse: gate.LargeTxns})
	g.same()
}

// withLost returns a team of five that has never changed its members. A leader that was elected since has never heard two
// of them.
func withLost(t *testing.T) (g *team, lost [2]uint64) {
	g = newTeam(t, 5)
	leader := g.elected()
	g.pass(time.Second)
	g.states(gate.State{Cluster: gate.Newest})
	lost = [2]uint64{leader, g.follower(leader)}
	g.down[lost[1]] = true
	g.kill(leader)
	g.elected()
	g.pass(10 * time.Second)
	return g, lost
}

// Members that are gone for good can be removed by a leader that was elected since, also by the first change.
func TestLaterLeaderRemovesLostMembers(t *testing.T) {
	g, lost := withLost(t)
	for _, id := range lost {
		g.change(roster.Remove, roster.Member{ID: id})
	}
	if voters := g.members[g.elected()].replica.voters; len(voters) != 3 {
		t.Errorf("voters %x", voters)
	}
}

// A lost member does not prevent the removal of another one unless it returns with an older program, or its data directory
// is unknown to the leader. It never prevents its own removal.
func TestLostMemberThatMayBeOlderPreventsOtherChanges(t *testing.T) {
	g, lost := withLost(t)
	leader := g.members[g.elected()].replica
	known := leader.peers[lost[1]]
	if known == 0 {
		t.Fatal("the leader does not know the data directory of a member that it has met")
	}
	delete(leader.peers, lost[1])
	if r := g.tryChange(roster.Remove, roster.Member{ID: lost[0]}); !errors.Is(r.Err, ErrTooNew) {
		t.Errorf("with an unknown directory: %v", r.Err)
	}
	leader.peers[lost[1]] = known
	delete(g.down, lost[1])
	g.of(lost[1], gate.Marks)
	g.pass(time.Second)
	if r := g.tryChange(roster.Remove, roster.Member{ID: lost[0]}); !errors.Is(r.Err, ErrTooNew) {
		t.Errorf("with an older program: %v", r.Err)
	}
	g.rewrite = nil
	g.pass(time.Second)
	g.change(roster.Remove, roster.Member{ID: lost[0]})
}

// An entry of a newer version halts a member with a sentence that says what to do. Its data counts as whole.
func TestEntryOfANewerVersionHalts(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.mayHalt = true
	data := entry.New(entry.Header{Sequence: 1, Needs: gate.Newest + 1}, slices.Values([]*entry.Prepared(nil)))
	if err := w.replica.raft.Propose(data); err != nil {
		t.Fatal(err)
	}
	w.step(Tick{})
	w.settle()
	var newer *gate.NewerError
	var damaged *record.DamagedError
	if !errors.As(w.halted, &newer) || newer.InUse != gate.Newest+1 || errors.As(w.halted, &damaged) {
		t.Errorf("halted with: %v", w.halted)
	}
}

// A member whose data uses a newer version does not start.
func TestDataOfANewerVersionIsRefused(t *testing.T) {
	w := newWorld(t)
	defer w.close()
	batch := w.db.NewBatch()
	record.Put(batch, record.KeyLevel, &logpb.Level{Level: uint32(gate.Newest) + 1})
	if err := batch.Commit(nil); err != nil {
		t.Fatal(err)
	}
	if err := w.reopened(); err == nil || !strings.Contains(err.Error(), "start the newer program again") {
		t.Errorf("opened: %v", err)
	}
}

// The whole state that a member sends contains what the log says of versions. A state of an older program does not.
func TestStateContainsVersions(t *testing.T) {
	snapshot := &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: new(uint64(7)), Term: new(uint64(2))}}
	terms := raftlog.Terms{{Index: 3, Term: 2}}
	level := func() (found []Record) {
		for _, r := range raftlog.RecordsAfter(&raftpb.Message{Snapshot: snapshot}, &raftpb.HardState{}) {
			if slices.Equal(r.Key, record.KeyLevel) {
				found = append(found, r)
			}
		}
		return found
	}
	versions := &logpb.Level{Level: 1, Cluster: 2}
	snapshot.Data = raftlog.SnapshotData(terms, versions)
	if got := level(); len(got) != 1 || !slices.Equal(got[0].Value, record.New(record.KeyLevel, versions).Value) {
		t.Errorf("the records are %v", got)
	}
	if got := raftlog.SnapshotTerms(snapshot); !slices.Equal(got, terms) {
		t.Errorf("the terms are %v", got)
	}
	snapshot.Data = record.New(record.KeyTerms, terms.Record()).Value
	if got := level(); len(got) != 0 {
		t.Errorf("an older program sent %v", got)
	}
}
