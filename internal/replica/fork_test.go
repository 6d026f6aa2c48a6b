package replica

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/raftlog"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// fork makes a cluster of three fork. One member is away. The acknowledgements of the other two are lost with the
// directory of one of them, of which an old copy is put back. That one elects a leader together with the member that
// was away.
func fork(t *testing.T, g *team) (whole, leader uint64) {
	t.Helper()
	whole = g.elected()
	g.do(whole, 1, put1("k", "before"))
	g.pass(time.Second)
	copied := g.follower(whole)
	away := 6 - whole - copied
	g.down[away] = true
	old := g.members[copied].crashed(nil)
	for i := range uint64(6) {
		if r := g.do(whole, 2+i, put1("k", fmt.Sprint("acknowledged ", i))); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	g.pass(2 * TickInterval)
	g.down[whole], g.down[copied] = true, true
	old.clock = clock.NewManual(g.members[copied].clock.Now())
	old.start()
	g.members[copied].close()
	g.members[copied] = old
	delete(g.down, copied)
	delete(g.down, away)
	g.members[whole].mayHalt = true
	return whole, g.elected()
}

// mustHalt lets time pass until a member halts because of the fork.
func mustHalt(t *testing.T, g *team, member uint64) {
	t.Helper()
	for range 200 {
		if g.members[member].halted != nil {
			break
		}
		g.pass(5 * time.Millisecond)
	}
	var forked *ForkError
	if err := g.members[member].halted; !errors.As(err, &forked) || !strings.Contains(err.Error(), "Keep this directory") {
		t.Fatalf("the member with what the others lost goes on, or halts with %v", err)
	}
	g.down[member] = true
}

// A member that has acknowledged changes which the leader lacks halts as soon as it learns of that.
func TestMemberHaltsWhenTheClusterHasForked(t *testing.T) {
	g := newTeam(t, 3)
	whole, leader := fork(t, g)
	delete(g.down, whole)
	mustHalt(t, g, whole)
	if r := g.do(leader, 20, put1("k", "another history")); r.Err != nil {
		t.Errorf("the others do not go on: %v", r.Err)
	}
}

// The member halts even if the others have more entries by then, some of them at indexes that are committed here.
func TestMemberHaltsWhenTheClusterForkedLongAgo(t *testing.T) {
	g := newTeam(t, 3)
	whole, leader := fork(t, g)
	for i := range uint64(20) {
		g.do(leader, 20+i, put1("k", "another history"))
	}
	delete(g.down, whole)
	mustHalt(t, g, whole)
}

// The member halts rather than replace its state by one that lacks entries which it acknowledged.
func TestMemberHaltsWhenTheStateOfAForkArrives(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.LogKeep = 5 })
	whole, leader := fork(t, g)
	for i := range uint64(40) {
		g.do(leader, 20+i, put1("k", "another history"))
	}
	if first, _ := g.members[leader].replica.log.FirstIndex(); first <= g.members[whole].replica.log.Last() {
		t.Fatalf("the leader still has entry %d", first)
	}
	delete(g.down, whole)
	mustHalt(t, g, whole)
	if g.members[whole].installs > 0 {
		t.Error("the state was replaced")
	}
}

// No read through such a member shows its state, however late it receives the others' entries. The same holds if it
// no longer knows the term of its own entry at the index that the leader names.
func TestForkIsDetectedBeforeAReadIsAnswered(t *testing.T) {
	for _, keep := range []uint64{0, 1} {
		t.Run(fmt.Sprint(keep), func(t *testing.T) {
			g := newTeamOf(t, 3, func(c *Config) { c.LogKeep = keep })
			whole, leader := fork(t, g)
			g.cut = func(m Message) bool {
				return m.To == whole && m.Raft != nil && (m.Raft.GetType() == raftpb.MsgApp || m.Raft.GetType() == raftpb.MsgSnap)
			}
			g.holdShips = true
			delete(g.down, whole)
			asked := 0
			for i := range uint64(100) {
				if known, _ := g.members[whole].replica.Leader(); known == leader {
					asked++
					g.step(whole, Read{ID: 100 + i})
				}
				g.pass(5 * time.Millisecond)
				if read, ok := g.replyTo(whole, 100+i).(ReadAt); ok {
					t.Fatalf("a read was answered from the fork, at revision %d", read.Header.Revision)
				}
				if g.members[whole].halted != nil {
					mustHalt(t, g, whole)
					break
				}
			}
			if asked == 0 {
				t.Fatal("the member never asked the leader")
			}
		})
	}
}

// A member that acknowledges entries which this leader never had acknowledges nothing.
func TestAcknowledgementsBeyondTheLogCountForNothing(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.pass(time.Second)
	follower := g.follower(leader)
	r := g.members[leader].replica
	g.cut = func(m Message) bool { return m.From != leader }
	g.step(leader, Received{Incarnation: 0x100 + follower, Message: Message{From: follower, To: leader, Raft: &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), From: new(follower), To: new(leader), Term: new(r.term), Index: new(r.log.Written() + 3),
	}}})
	before := r.raft.BasicStatus().HardState.GetCommit()
	g.step(leader, Request{ID: 1, Command: put1("k", "v")})
	if after := r.raft.BasicStatus().HardState.GetCommit(); after != before {
		t.Errorf("entry %d was committed, and only the leader has it", after)
	}
	if r.counts.Malformed == 0 {
		t.Error("nothing is counted")
	}
}

// Uncertain entries are no evidence.
func TestOnlyCertainEntriesProveAFork(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.LogKeep = 5 })
	leader := g.elected()
	for i := range uint64(30) {
		g.do(leader, 1+i, put1("k", "v"))
	}
	g.pass(2 * TickInterval)
	follower := g.follower(leader)
	r := g.members[follower].replica
	truncated := r.log.Truncated().Index
	if truncated < 5 || r.settled <= truncated+1 {
		t.Fatalf("truncated up to %d, committed up to %d", truncated, r.settled)
	}
	message := func(kind raftpb.MessageType, term, index, logTerm uint64) *raftpb.Message {
		return &raftpb.Message{Type: kind.Enum(), From: new(leader), To: new(follower), Term: new(term), Index: new(index), LogTerm: new(logTerm)}
	}
	at := func(m *raftpb.Message, index, term uint64) *raftpb.Message {
		m.Entries = []*raftpb.Entry{{Index: new(index), Term: new(term)}}
		return m
	}
	sent := func(index, term uint64, starts ...raftlog.Mark) *raftpb.Message {
		m := message(raftpb.MsgSnap, r.term, 0, 0)
		m.Snapshot = &raftpb.Snapshot{
			Metadata: &raftpb.SnapshotMetadata{Index: new(index), Term: new(term)}, Data: record.New(record.KeyTerms, raftlog.Terms(starts).Record()).Value,
		}
		return m
	}
	known, last := r.term, r.settled
	for _, tried := range []struct {
		what  string
		m     *raftpb.Message
		proof bool
	}{
		{"the same term", message(raftpb.MsgApp, known, last, known), false},
		{"another term", message(raftpb.MsgApp, known, last, known+1), true},
		{"another term before, from a later leader", message(raftpb.MsgApp, known+7, truncated+1, known+1), true},
		{"another term at the last entry that was truncated", message(raftpb.MsgApp, known, truncated, known+1), true},
		{"a truncated entry", message(raftpb.MsgApp, known, truncated-1, known+1), false},
		{"an entry that is not committed", message(raftpb.MsgApp, known, last+1, known+1), false},
		{"an entry in the message", at(message(raftpb.MsgApp, known, last-1, known), last, known+1), true},
		{"an entry in the message that is not committed", at(message(raftpb.MsgApp, known, last, known), last+1, known+1), false},
		{"a leader of an earlier term", message(raftpb.MsgApp, known-1, last, known+1), false},
		{"a candidate", message(raftpb.MsgVote, known+1, last, known+1), false},
		{"an acknowledgement", message(raftpb.MsgAppResp, known, last, known+1), false},
		{"where to read, of the same term", message(raftpb.MsgReadIndexResp, known, last, 0), false},
		{"where to read, of another term", message(raftpb.MsgReadIndexResp, known+1, last, 0), true},
		{"where to read, ahead of this member", message(raftpb.MsgReadIndexResp, known+1, last+1, 0), false},
		{"a state of the same terms", sent(last, known, raftlog.Mark{Index: 1, Term: known}), false},
		{"a later state of the same terms", sent(last+10, known+1, raftlog.Mark{Index: 1, Term: known}, raftlog.Mark{Index: last + 1, Term: known + 1}), false},
		{"a later state of which only the end is known", sent(last+10, known+1), false},
		{"a later state with another term at the last entry", sent(last+10, known+1, raftlog.Mark{Index: 1, Term: known}, raftlog.Mark{Index: last, Term: known + 1}), true},
		{"a later state with another term at a truncated entry", sent(last+10, known, raftlog.Mark{Index: 1, Term: known - 1}, raftlog.Mark{Index: truncated - 1, Term: known}), false},
		{"a state with another term", sent(last, known+1), true},
		{"a later state with terms that make no sense", sent(last+10, known+1, raftlog.Mark{Index: last, Term: known + 1}, raftlog.Mark{Index: last - 1, Term: known}), false},
	} {
		if err := r.forked(tried.m); (err != nil) != tried.proof {
			t.Errorf("%s: %v", tried.what, err)
		}
	}
}

// Entries that raft has received and not yet handed to the disk are not in the log in which a proof is looked up.
func TestEntriesOnTheirWayToTheDiskProveNoFork(t *testing.T) {
	g := newTeam(t, 3)
	leader := g.elected()
	g.do(leader, 1, put1("k", "v"))
	g.pass(time.Second)
	follower := g.follower(leader)
	w := g.members[follower]
	r := w.replica
	last, term := r.log.Last(), r.term
	app := func(m *raftpb.Message, commit uint64) Received {
		m.Type, m.From, m.To, m.Commit = raftpb.MsgApp.Enum(), new(leader), new(follower), new(commit)
		return Received{Incarnation: 0x100 + leader, Message: Message{From: leader, To: follower, Raft: m}}
	}
	logged := func(index, term uint64) []*raftpb.Entry {
		return []*raftpb.Entry{{Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum()}}
	}
	// The log has an entry that never commits. Then a later leader replaces it, and has the new one committed, and
	// sends that again before the first is on the disk.
	w.step(app(&raftpb.Message{Term: new(term), Index: new(last), LogTerm: new(term), Entries: logged(last+1, term)}, last))
	w.settle()
	later := app(&raftpb.Message{Term: new(term + 1), Index: new(last), LogTerm: new(term), Entries: logged(last+1, term+1)}, last+1)
	again := app(&raftpb.Message{Term: new(term + 1), Index: new(last + 1), LogTerm: new(term + 1)}, last+1)
	w.step(later, again)
	w.step(again)
	w.settle()
	w.step(again)
}

// Which term began where outlives a restart and a state of another, and is the same everywhere.
func TestStartsOfTermsAreRemembered(t *testing.T) {
	g := newTeamOf(t, 3, func(c *Config) { c.LogKeep = 5 })
	for i := range uint64(4) {
		leader := g.elected()
		for j := range uint64(15) {
			g.do(leader, 1+100*i+j, put1("k", "v"))
		}
		g.crash(leader, 3*time.Second)
	}
	g.same()
	want := g.members[1].replica.terms
	if len(want) < 4 {
		t.Errorf("only %d terms: %v", len(want), want)
	}
	for _, id := range g.ids {
		r := g.members[id].replica
		if !slices.Equal(r.terms, want) {
			t.Errorf("member %d knows %v, and member 1 knows %v", id, r.terms, want)
		}
		if term, ok := r.settledTerm(r.settled); !ok || term != want[len(want)-1].Term {
			t.Errorf("member %d: the last entry is of term %d, %v", id, term, ok)
		}
	}
}
