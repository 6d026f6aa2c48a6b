package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/internal/replica/yield"
)

// persisting is a write in progress, with what raft hears when it is done.
type persisting struct {
	yield.Write // its number, and when it was handed out
	entries     []*raftpb.Entry
	hard        *raftpb.HardState
	responses   []*raftpb.Message

	promised          time.Duration // the longest promise that it persists
	peer, incarnation uint64        // the new peer that it persists
	roster            roster.Roster // the list of members that is stable with it; empty: unchanged
}

// writeForRaft hands to the disk what raft wants on stable storage. Data that needs no sync (a commit index that
// moved) waits for the next synced write, but raft's responses keep their order.
func (r *Replica) writeForRaft(m *raftpb.Message) {
	if r.installing || !raft.IsEmptySnap(m.GetSnapshot()) {
		r.persistSnapshot(m)
		return
	}
	var hard *raftpb.HardState
	if m.Term != nil && m.Commit != nil {
		hard = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if len(m.GetEntries()) == 0 && !r.mustSync(hard) {
		if n := len(r.persisting); n > 0 {
			last := &r.persisting[n-1]
			last.responses = append(last.responses, m.GetResponses()...)
		} else {
			r.respond(m.GetResponses())
		}
		return
	}
	batch := r.db.NewBatch()
	r.log.Append(batch, m.GetEntries(), hard)
	r.persistOwn(persisting{entries: m.GetEntries(), hard: hard, responses: m.GetResponses()}, batch)
	r.full = true
}

// persistOwn hands a batch to the disk.
func (r *Replica) persistOwn(p persisting, batch *pebble.Batch) {
	r.persistSequence++
	p.Sequence, p.Since = r.persistSequence, r.now
	r.persisting = append(r.persisting, p)
	r.emit(Persist{Sequence: r.persistSequence, Batch: batch})
}

// syncState syncs the state that was written so far. Nothing waits for it, so it writes only a marker behind that
// state into the write-ahead log.
func (r *Replica) syncState(p persisting) {
	batch := r.db.NewBatch()
	if err := batch.LogData([]byte("state"), nil); err != nil {
		panic(fmt.Sprintf("replica: cannot mark the log: %v", err))
	}
	r.persistOwn(p, batch)
}

// mustSync reports whether a hard state holds a promise (a term or a vote) that is not on the disk yet.
func (r *Replica) mustSync(hard *raftpb.HardState) bool {
	if hard == nil {
		return false
	}
	newest := r.newestHard()
	return hard.GetTerm() != newest.GetTerm() || hard.GetVote() != newest.GetVote()
}

// newestHard returns the hard state that is on stable storage or on its way there.
func (r *Replica) newestHard() *raftpb.HardState {
	newest := r.log.HardState()
	for _, p := range r.persisting {
		if p.hard != nil {
			newest = p.hard
		}
	}
	return newest
}

func (r *Replica) onPersisted(e Persisted) {
	if e.Err != nil {
		r.haltWith(fmt.Errorf("the disk failed while the log was written, and what it has of it is unknown: %w", e.Err))
		return
	}
	if len(r.persisting) == 0 || r.persisting[0].Sequence != e.Sequence {
		panic(fmt.Sprintf("replica: write %d was reported out of order; under way: %v", e.Sequence, r.persisting))
	}
	done := r.persisting[0]
	r.persisting = r.persisting[1:]
	if done.promised > 0 {
		r.grantor.Persisted(done.promised)
	}
	if !done.roster.Empty() {
		r.stableRoster = done.roster
	}
	if done.peer != 0 {
		r.peers[done.peer] = done.incarnation
		r.askStanding(done.peer)
	}
	r.log.Stable(done.entries, done.hard, r.applied.Index)
	r.respond(done.responses)
}

// Settles reports whether the oldest unreported write has this number, and no short command waits to be proposed
// after it.
func (r *Replica) Settles(sequence uint64) bool {
	return len(r.persisting) > 0 && r.persisting[0].Sequence == sequence && r.intake.Short() == 0
}

// respond hands out the messages that had to wait for the disk, and steps raft's messages to itself. raft itself
// drops those of an older term.
func (r *Replica) respond(messages []*raftpb.Message) {
	for _, m := range messages {
		if m.GetTo() != r.identity.MemberID {
			r.sendRaft(m)
			continue
		}
		if !r.stepRaft(m) && slices.Contains(r.everyone(), r.identity.MemberID) { // raft hears no answers of a removed member
			panic(fmt.Sprintf("replica: raft refuses its own message %v", m))
		}
	}
}
