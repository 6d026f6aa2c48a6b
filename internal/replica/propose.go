package replica

import "go.etcd.io/raft/v3/raftpb"

// propose puts what waits into the log, unless a write is under way: what comes until that is on the disk goes
// into one write, and one sync, together.
func (r *Replica) propose() {
	for r.serving && !r.halted && r.transferee == 0 && len(r.queue) > 0 && len(r.persisting) == 0 && len(r.proposals) < maxProposed {
		n := r.fit()
		taken := r.queue[:n:n]
		r.queue = r.queue[n:]
		r.queueBytes -= clientBytes(taken)
		ending, asked := countCommands(taken)
		r.ending -= ending
		r.pace.proposed(r.now, asked)
		before := r.sequence
		m := &raftpb.Message{Type: raftpb.MsgProp.Enum(), From: new(r.identity.MemberID), Entries: r.divide(taken)}
		if err := r.raft.Step(m); err != nil { // none of them is in the log
			for sequence := before + 1; sequence <= r.sequence; sequence++ {
				delete(r.proposals, sequence)
			}
			r.drop(taken, ErrNoLeader)
			continue
		}
		r.observe()
		r.advance()
	}
}

// divide puts commands that are written together into log entries, each with a sequence of its own. Entries are applied
// and answered one by one, so many commands are a few entries: while some are applied, those who asked for
// the ones before ask for more, which the disk has by the time it is all done. What was asked for together stays together.
func (r *Replica) divide(commands []pending) []*raftpb.Entry {
	weight := 0
	for i := range commands {
		weight += commands[i].weight
	}
	each := max(minEntryWeight, (weight+writeEntries-1)/writeEntries)
	entries, wall := make([]*raftpb.Entry, 0, writeEntries), r.wallNow()
	for len(commands) > 0 {
		n, weight := 1, commands[0].weight
		for n < len(commands) && (commands[n].along || weight+commands[n].weight <= each) {
			weight += commands[n].weight
			n++
		}
		r.sequence++
		r.proposals[r.sequence] = commands[:n:n]
		entries = append(entries, &raftpb.Entry{Data: encodeEntry(r.sequence, wall, commands[:n])})
		commands = commands[n:]
	}
	return entries
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

// fit returns how many of the commands that wait are written together: at least one, and no more than keep
// the time it takes to apply them short.
func (r *Replica) fit() int {
	n, size, weight := 0, 0, 0
	for _, p := range r.queue {
		size, weight = size+p.size, weight+p.weight
		if n > 0 && (size > maxWriteBytes || weight > maxWriteWeight) {
			break
		}
		n++
	}
	return n
}
