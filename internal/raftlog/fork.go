package raftlog

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
)

// A ForkError says that a leader lacks an entry that had been committed.
type ForkError struct {
	Leader, Term uint64
	Index        uint64
	Shown, Known uint64 // the terms of the entry at Index, there and here
}

func (e *ForkError) Error() string {
	return fmt.Sprintf("the cluster has forked: member %x leads in term %d with an entry %d of term %d, and here entry %d was committed in term %d. "+
		"A member was started with an old copy of its data directory, or its disk lost what it had confirmed. Keep this directory: it holds "+
		"acknowledged changes that the others lack. Stop the other members, copy every data directory, and decide which state to continue with",
		e.Leader, e.Term, e.Index, e.Shown, e.Index, e.Known)
}

// Fork returns the proof of a fork that a leader's message holds; nil if it holds none. Entries after truncated, up to
// settled, are committed here. term returns the term of a committed entry, if that is certain.
func Fork(m *raftpb.Message, truncated, settled uint64, term func(index uint64) (term uint64, certain bool)) (proof *ForkError) {
	show := func(index, shown uint64) {
		if known, ok := term(index); ok && known != shown && proof == nil {
			proof = &ForkError{Leader: m.GetFrom(), Term: m.GetTerm(), Index: index, Shown: shown, Known: known}
		}
	}
	switch m.GetType() {
	case raftpb.MsgApp:
		show(m.GetIndex(), m.GetLogTerm())
		for _, e := range m.GetEntries() {
			if e.GetIndex() > settled {
				break
			}
			show(e.GetIndex(), e.GetTerm())
		}
	case raftpb.MsgReadIndexResp:
		show(m.GetIndex(), m.GetTerm()) // a leader names only entries of its own term or later
	case raftpb.MsgSnap:
		last := MarkOf(m.GetSnapshot()).Index
		SnapshotTerms(m.GetSnapshot()).Ends(truncated, min(last, settled), show)
	}
	return proof
}
