package replica

// propose puts what waits into the next log entry, unless a write is under way: what comes until that is
// on the disk goes into one entry, and one sync, together.
func (r *Replica) propose() {
	for r.serving && !r.halted && r.transferee == 0 && len(r.queue) > 0 && len(r.persisting) == 0 && len(r.proposals) < maxProposed {
		r.sequence++
		n := r.fit()
		data := encodeEntry(r.sequence, r.wallNow(), r.queue[:n])
		taken := r.queue[:n:n]
		r.queue = r.queue[n:]
		r.queueBytes -= clientBytes(taken)
		ending, asked := countCommands(taken)
		r.ending -= ending
		r.pace.proposed(r.now, asked)
		r.proposals[r.sequence] = taken
		if err := r.raft.Propose(data); err != nil {
			delete(r.proposals, r.sequence)
			r.drop(taken, ErrNoLeader)
			continue
		}
		r.observe()
		r.advance()
	}
}

// countCommands counts the leases that expire, and the commands of clients.
func countCommands(commands []pending) (ending, asked int) {
	for _, p := range commands {
		if e, ok := p.op.(expiries); ok {
			ending += len(e)
		}
		if p.id != 0 {
			asked++
		}
	}
	return ending, asked
}

// fit returns how many of the commands that wait go into one entry: at least one, and no more than keep
// the time it takes to apply them, in which nothing else happens, short.
func (r *Replica) fit() int {
	n, size, weight := 0, 0, 0
	for _, p := range r.queue {
		size, weight = size+p.size, weight+p.weight
		if n > 0 && (size > maxEntryBytes || weight > maxEntryWeight) {
			break
		}
		n++
	}
	return n
}
