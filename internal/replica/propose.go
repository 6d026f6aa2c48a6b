package replica

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
)

// propose puts what waits into the next log entry, unless a write is under way: what comes until that is
// on the disk goes into one entry, and one sync, together.
func (r *Replica) propose() {
	for r.serving && !r.halted && r.transferee == 0 && r.queued() > 0 && len(r.persisting) == 0 && len(r.proposals) < maxProposed {
		r.sequence++
		taken := r.takeNext()
		data := entry.New(r.sequence, r.wallNow(), prepared(taken))
		ending, asked := countCommands(taken)
		r.ending -= ending
		r.pace.proposed(r.now, asked)
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

// dequeue takes the first commands out of the queue. If those are all, the queue goes on in the memory of a proposal
// that was applied. No two share memory, so what is kept of one to be used again keeps nothing of others.
func (r *Replica) dequeue(n int) []pending {
	if n < len(r.queue) {
		taken := slices.Clone(r.queue[:n])
		clear(r.queue[:n])
		r.queue = r.queue[n:]
		return taken
	}
	taken := r.queue
	r.queue = nil
	if last := len(r.spareQueues) - 1; last >= 0 {
		r.queue, r.spareQueues = r.spareQueues[last], r.spareQueues[:last]
	}
	return taken
}

// recycle takes the memory back of commands whose fate everybody knows.
func (r *Replica) recycle(commands []pending) {
	for _, p := range commands {
		r.inflight.recycle(p)
	}
	if cap(commands) <= maxSpare && len(r.spareQueues) < maxSpareQueues {
		clear(commands)
		r.spareQueues = append(r.spareQueues, commands[:0])
	}
}

// maxSpareQueues is how many proposals are usually under way at a time.
const maxSpareQueues = 4

// countCommands counts the leases that expire, and the commands of clients.
func countCommands(commands []pending) (ending, asked int) {
	for _, p := range commands {
		if e, ok := p.Command.(entry.Expire); ok {
			ending += len(e)
		}
		if p.id != 0 {
			asked++
		}
	}
	return ending, asked
}

// takeNext takes the commands of the next entry: what waits in the queue, as much as keeps the time it takes to apply
// them, in which nothing else happens, short; and a little of bulk.
func (r *Replica) takeNext() []pending {
	if len(r.queue) == 0 {
		return r.takeBulk()
	}
	taken := r.dequeue(fitting(r.queue, maxEntryBytes, maxEntryWeight))
	r.queueBytes -= clientBytes(taken)
	if len(r.bulk) > 0 {
		taken = append(taken, r.takeBulk()...)
	}
	return taken
}
