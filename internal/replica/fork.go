package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/raftlog"
)

// A member that was started with an old copy of its data directory has forgotten entries that it acknowledged, and
// its votes. Together with a member that was away it can elect a leader that lacks these entries. The members that
// still have them find out. Without such an accident, a leader has every entry that was committed before its
// election. So a leader that shows another term at the index of a committed entry proves a fork. This member then
// halts, and says what is missing elsewhere.
//
// A false alarm would be worse than the fork, so only certain evidence counts. The sender leads, in a term that is
// not below this member's own: candidates may have entries that were never committed. The index is committed here,
// and its term is known for certain. A truncated entry is no evidence, nor is one that raft has not yet handed to the
// disk.

// ForkError is [raftlog.ForkError].
type ForkError = raftlog.ForkError

// settledTerm returns the term of a committed entry, if that is certain. An entry that raft received during this Step
// may not have been handed to the disk; then another entry may still be at that index there.
func (r *Replica) settledTerm(index uint64) (term uint64, known bool) {
	if r.installing || index > r.settled {
		return 0, false
	}
	for i := len(r.persisting) - 1; i >= 0; i-- {
		entries := r.persisting[i].entries
		if len(entries) == 0 || index < entries[0].GetIndex() {
			continue
		}
		at := index - entries[0].GetIndex()
		if at >= uint64(len(entries)) {
			return 0, false
		}
		return entries[at].GetTerm(), true
	}
	term, err := r.log.Term(index)
	return term, err == nil
}

// forked returns the proof of a fork that a leader's message holds; nil if it holds none.
func (r *Replica) forked(m *raftpb.Message) error {
	if m.GetTerm() < r.term {
		return nil
	}
	if proof := raftlog.Fork(m, r.log.Truncated().Index, r.settled, r.settledTerm); proof != nil {
		return proof
	}
	return nil
}
