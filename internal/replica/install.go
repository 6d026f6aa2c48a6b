package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/raftlog"
)

// replacing is the state of another member that replaces this member's own. While that is in progress nothing is
// written: raft gets no entries applied, and its writes are withheld.
type replacing struct {
	installing bool
	// arrived are the states that came in this Step, with messages that raft may or may not accept.
	arrived  []arrival
	sequence uint64          // of the Install in progress
	replaced *raftpb.Message // with which raft asked for it
	withheld []withheld
}

// arrival is a state that came with a snapshot.
type arrival struct {
	at    raftlog.Mark
	state State
}

// withheld is a write of raft that waits, with its state if it is a snapshot.
type withheld struct {
	m     *raftpb.Message
	state State
}

// receiving keeps the state that came with a snapshot, until raft has seen the message or the message was dropped.
func (r *Replica) receiving(e Received) {
	if e.State != nil {
		r.arrived = append(r.arrived, arrival{raftlog.MarkOf(e.Message.Raft.GetSnapshot()), e.State})
	}
}

// discardUnheeded discards the states that raft did not accept.
func (r *Replica) discardUnheeded() {
	for _, a := range r.arrived {
		if !r.halted && a.state != nil {
			r.emit(Discard{State: a.state})
		}
	}
	r.arrived = nil
}

// heeded returns the state of a snapshot that raft wants installed. Of two it returns the one that came last.
func (r *Replica) heeded(snapshot *raftpb.Snapshot) State {
	for i := len(r.arrived) - 1; i >= 0; i-- {
		if a := &r.arrived[i]; a.at == raftlog.MarkOf(snapshot) && a.state != nil {
			state := a.state
			a.state = nil
			return state
		}
	}
	panic(fmt.Sprintf("replica: raft installs a snapshot that no state came with: %v", snapshot))
}

// persistSnapshot processes a write of raft that is a snapshot, or comes after one.
func (r *Replica) persistSnapshot(m *raftpb.Message) {
	w := withheld{m: m}
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		w.state = r.heeded(m.GetSnapshot())
	}
	r.installOrWithhold(w)
}

func (r *Replica) installOrWithhold(w withheld) {
	switch {
	case r.installing:
		r.withheld = append(r.withheld, w)
	case w.state == nil:
		r.writeForRaft(w.m)
	default:
		r.replace(w)
	}
}

// replace asks the driver to replace this member's state. Earlier writes without a report are void: raft only hears
// that they are done. The new state contains the entries that were to be applied.
func (r *Replica) replace(w withheld) {
	hard := r.hardAfter(w.m)
	r.installing, r.replaced = true, w.m
	r.sweeping = false
	r.store.Suspend()
	for i := range r.persisting {
		r.persisting[i].entries, r.persisting[i].hard = nil, nil
	}
	for _, m := range r.deferred {
		r.respond(m.GetResponses())
	}
	r.deferred = nil
	r.persistSequence++
	r.replacing.sequence = r.persistSequence
	r.emit(Install{Sequence: r.persistSequence, State: w.state, Own: raftlog.RecordsAfter(w.m, hard)})
}

// hardAfter returns the hard state that must be on stable storage together with a message of raft.
func (r *Replica) hardAfter(m *raftpb.Message) *raftpb.HardState {
	if m.Term != nil && m.Commit != nil {
		return &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	return r.newestHard()
}

// onInstalled continues from the new state.
func (r *Replica) onInstalled(e Installed) {
	if r.halted {
		return
	}
	if !r.installing || e.Sequence != r.replacing.sequence {
		panic(fmt.Sprintf("replica: installation %d was reported, which is not under way", e.Sequence))
	}
	err := e.Err
	if err == nil {
		err = r.reload(r.store.Reload)
	}
	if err != nil {
		r.haltWith(fmt.Errorf("the state of another member could not replace this member's own: %w", err))
		return
	}
	done, rest := r.replaced, r.withheld
	r.installing, r.replaced, r.withheld = false, nil, nil
	r.configureHolder()
	if !r.roster.Empty() {
		r.emit(Reconfigured{Members: r.roster.Members()})
	}
	r.emit(Replaced{})
	r.respond(done.GetResponses())
	for _, w := range rest {
		r.installOrWithhold(w)
	}
	r.answerPendingReads()
}
