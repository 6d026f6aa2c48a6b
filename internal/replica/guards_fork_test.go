package replica

import (
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// Each test here names guards of effects, of forks and of what is forwarded, and fails if exactly one of them is removed.

// A driver may stop in the middle of the effects.
func TestEffectsMayBeLeftUnread(t *testing.T) {
	effects := []Effect{WakeAt{Wait: 1}, Replies{{ID: 1}, {ID: 2}}, WakeAt{Wait: 2}}
	for stop := 1; stop <= 4; stop++ {
		n := 0
		for e := range Each(effects) {
			if _, many := e.(Replies); many {
				t.Error("replies come all at once")
			}
			if n++; n == stop {
				break
			}
		}
		if n != stop {
			t.Errorf("%d effects came, and not %d", n, stop)
		}
	}
}

// The term of a committed entry is certain if the entry is on the disk, or in the newest write that goes back to it. While
// another state is being installed nothing is.
func TestTermsAreCertainWhereTheLogIs(t *testing.T) {
	w := newWorld(t).serve()
	defer w.close()
	w.do(1, putKey("a"))
	r := w.replica
	last, settled := r.log.Last(), r.settled
	entry := func(index, term uint64) *raftpb.Entry { return &raftpb.Entry{Index: &index, Term: &term} }
	r.persisting = []persisting{{entries: []*raftpb.Entry{entry(last, 7)}}}
	r.settled = last + 1
	for _, c := range []struct {
		index, term uint64
		known       bool
	}{{last - 1, r.term, true}, {last, 7, true}, {last + 1, 0, false}, {last + 2, 0, false}} {
		if term, known := r.settledTerm(c.index); known != c.known || known && term != c.term {
			t.Errorf("entry %d of %d: term %d, %v", c.index, last, term, known)
		}
	}
	r.installing = true
	if _, known := r.settledTerm(last - 1); known {
		t.Error("the term of an entry is certain while the state is replaced")
	}
	r.installing, r.persisting, r.settled = false, nil, settled
}

// A leader that does not serve yet keeps its clients' renewals, and forwards none to itself.
func TestLeaderForwardsNothingToItself(t *testing.T) {
	g := newTeam(t, 3)
	w := g.members[g.elected()]
	effects := w.emitted(func(r *Replica) {
		r.forward(Renewal{ID: 1, Leases: []lessor.ID{7}})
		r.now = r.now.Add(time.Millisecond)
		r.forwardAll()
	})
	if len(effects) != 0 || len(w.replica.forwarded.unsent) != 1 {
		t.Errorf("sent: %v", effects)
	}
}
