package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
)

// propose puts the commands that wait into the next log entry, unless a write is in flight. What comes until that write
// is on the disk goes into one entry, and one sync, together.
func (r *Replica) propose() {
	for r.serving && !r.halted && r.transferee == 0 && !r.drains() && r.intake.Len() > 0 && len(r.persisting) == 0 && len(r.proposals) < maxProposed {
		r.sequence++
		taken := r.intake.Take(r.now)
		data := entry.New(r.sequence, r.wallNow(), intake.Prepared(taken))
		r.proposals[r.sequence] = taken
		if err := r.raft.Propose(data); err != nil {
			delete(r.proposals, r.sequence)
			r.fail(taken, ErrNoLeader)
			continue
		}
		r.observe()
		r.advance()
	}
}
