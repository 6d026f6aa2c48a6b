package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// propose puts the commands that wait into the next log entry, unless a write is in flight. What comes until that write
// is on the disk goes into one entry, and one sync, together. The leader's statement of the cluster version joins them, or
// has an entry of its own. A cluster's only member waits for a command. The same entry takes the version of
// Config.Uses in use.
func (r *Replica) propose() {
	for r.serving && !r.halted && r.transferee == 0 && !r.drains() && len(r.persisting) == 0 && len(r.proposals) < maxProposed {
		states, needs := r.gates.Due(r.others), r.gates.Begin(r.cfg.Uses, r.others)
		if r.intake.Len() == 0 && (states == 0 || r.alone()) && (needs == 0 || len(r.proposals) > 0) {
			return
		}
		r.sequence++
		taken := r.intake.Take(r.now)
		data := entry.New(entry.Header{Sequence: r.sequence, Wall: r.wallNow(), States: states, Needs: needs}, intake.Prepared(taken))
		r.proposals[r.sequence] = taken
		if err := r.raft.Propose(data); err != nil {
			delete(r.proposals, r.sequence)
			r.fail(taken, ErrNoLeader)
			continue
		}
		if states != 0 {
			r.gates.Propose(states)
		}
		r.observe()
		r.advance()
	}
}
