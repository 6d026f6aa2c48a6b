package raftlog

import "fmt"

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
