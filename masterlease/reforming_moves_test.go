package masterlease

import (
	"fmt"
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// become makes the member a follower.
func (v *move) become(term, leader uint64) {
	p := v.p
	if term > p.term {
		p.term, p.voted = term, 0
		v.persist()
	}
	p.role, p.leader, p.votes = Follower, leader, [modelMembers + 1]bool{}
	p.h.Observe(v.m.raftState(p), v.now())
}

// campaign asks for votes.
func (v *move) campaign() {
	p := v.p
	p.term++
	p.voted, p.role, p.leader, p.votes = p.id, Candidate, 0, [modelMembers + 1]bool{}
	p.votes[p.id] = true
	v.persist()
	p.h.Observe(v.m.raftState(p), v.now())
	v.send(letter{kind: vote, from: p.id, term: p.term, config: p.log.change(p.applied), index: p.log.n, lastTerm: p.log.last().term})
	v.countVotes()
}

func (v *move) countVotes() {
	m, p := v.m, v.p
	if !m.hasQuorum(p, func(id uint64) bool { return p.votes[id] }) {
		return
	}
	if !m.open(p, v.s.tick) {
		v.fail("member %d is elected in spite of its promise", p.id)
	}
	for _, other := range v.s.parts {
		if other != p && other.role == Leader && other.term == p.term {
			v.fail("members %d and %d lead in term %d", p.id, other.id, p.term)
		}
	}
	m.did["election"]++
	v.s.elected = max(v.s.elected, p.term)
	p.role, p.leader, p.match = Leader, p.id, [modelMembers + 1]int{}
	p.h.Observe(m.raftState(p), v.now())
	m.configure(p, v.s.tick)
	v.append(noChange)
}

// append appends an entry to a leader's log.
func (v *move) append(change int) {
	p := v.p
	p.log = p.log.with(logged{p.term, change})
	p.match[p.id] = p.log.n
	v.persist()
	v.advance()
}

// advance commits what a quorum has.
func (v *move) advance() {
	p := v.p
	for n := p.log.n; n > p.commit; n-- {
		if p.log.entries[n-1].term == p.term && v.m.hasQuorum(p, func(id uint64) bool { return p.match[id] >= n }) {
			p.commit = n
			break
		}
	}
	v.applyQuiet()
}

// applyQuiet applies committed entries up to the next change of the voters. A member that joins learns the founders there.
func (v *move) applyQuiet() {
	p := v.p
	for p.applied < p.commit && (p.applied == 0 || p.log.entries[p.applied].change == noChange) {
		p.applied++
		if p.applied == 1 {
			v.m.configure(p, v.s.tick)
		}
		p.h.Applied(p.log.entries[p.applied-1].term, v.now())
		if p.role == Leader {
			v.s.acked = max(v.s.acked, p.applied)
		}
	}
}

// apply applies a committed change of the voters.
func (v *move) apply() {
	m, p := v.m, v.p
	p.applied++
	m.configure(p, v.s.tick)
	if p.role == Leader {
		v.s.acked = max(v.s.acked, p.applied)
		p.h.Applied(p.log.entries[p.applied-1].term, v.now())
		if !m.isVoter(p) {
			m.did["removal of the leader"]++
			v.become(p.term, 0)
		} else {
			v.advance()
		}
	}
	v.applyQuiet()
}

// mayPropose reports whether a leader may propose the next configuration, and which it is.
func (m *model) mayPropose(p *part) (change int, ok bool) {
	change = p.log.change(p.log.n) + 1
	if p.role != Leader || change >= len(m.script.configs) || p.log.change(p.log.n) != p.log.change(p.applied) {
		return 0, false
	}
	return change, p.h.applied || m.breach.hasty
}

// propose proposes the next configuration.
func (v *move) propose(change int) {
	v.m.did["change"]++
	if !v.m.breach.unreported {
		v.p.h.Pending(v.m.script.configs[change], v.now())
	}
	v.append(change)
}

// broadcast sends a leader's log.
func (v *move) broadcast() {
	p := v.p
	v.s.sends++
	v.send(letter{kind: appendLog, from: p.id, term: p.term, log: p.log, config: p.log.change(p.applied), commit: p.commit})
}

// beat sends heartbeats that ask for promises. They commit nothing, as those to a member of which the leader does not know what
// it has.
func (v *move) beat() {
	p := v.p
	v.s.sends++
	if _, ok := p.h.Request(v.now()); ok {
		v.send(letter{kind: appendLog, from: p.id, term: p.term, config: p.log.change(p.applied), tick: v.s.tick})
	}
}

// receive processes a letter.
func (v *move) receive(l letter) {
	switch l.kind {
	case appendLog:
		v.receiveAppend(l)
	case appended:
		v.receiveAppended(l)
	case vote:
		v.receiveVote(l)
	case voted:
		p := v.p
		if p.role == Candidate && p.term == l.term && v.m.open(p, v.s.tick) {
			p.votes[l.from] = true
			v.countVotes()
		}
	}
}

func (v *move) receiveAppend(l letter) {
	p := v.p
	if l.term < p.term {
		return
	}
	if p.h.HearLeader(l.term, v.now()) {
		v.fail("member %d hears a later leader while it has authority", p.id)
	}
	v.become(l.term, l.from)
	answer := letter{kind: appended, from: p.id, to: l.from, term: p.term, index: l.log.n}
	if l.isHeartbeat() {
		v.hear(l)
	} else if !v.take(l) {
		return
	}
	if g, ok := p.g.Grant(l.from, p.term, v.now()); ok {
		answer.grants, answer.tick = true, int(g.Echo.Raw/int64(modelTick))-1
	}
	v.send(answer)
}

// take makes the log equal to the leader's.
func (v *move) take(l letter) bool {
	p := v.p
	if same := p.log.agrees(l.log); same < l.log.n {
		if same < p.commit {
			v.fail("member %d loses what is committed", p.id)
			return false
		}
		p.log = l.log
	}
	p.commit = max(p.commit, l.commit)
	v.applyQuiet()
	v.persist()
	return true
}

// hear makes a promise. Its record is on the disk before it.
func (v *move) hear(l letter) {
	p := v.p
	heard := Heard{From: l.from, Term: l.term, Request: Request{Term: l.term, Epoch: 1, Stamp: now(l.tick), Duration: modelPromise, Drift: clock.DefaultDrift}}
	outcome := p.g.Hear(heard, v.m.raftState(p), v.now())
	if outcome == Unpersisted {
		longest, _ := p.g.ToPersist()
		p.g.Persisted(longest)
		p.recorded = true
		outcome = p.g.Hear(heard, v.m.raftState(p), v.now())
	}
	if outcome == Promised {
		v.m.did["promise"]++
	}
}

func (v *move) receiveAppended(l letter) {
	p := v.p
	if p.role != Leader || p.term != l.term {
		return
	}
	if l.grants {
		p.h.Receive(l.from, Grant{
			Term: l.term, Epoch: 1, Echo: now(l.tick), Duration: modelPromise, Drift: clock.DefaultDrift, Remaining: 1 << 40,
		}, v.now())
	}
	p.match[l.from] = max(p.match[l.from], l.index)
	v.advance()
}

func (v *move) receiveVote(l letter) {
	m, p := v.m, v.p
	if l.term <= p.term || p.h.Valid(v.now()) || !m.open(p, v.s.tick) {
		return
	}
	v.become(l.term, 0)
	if p.log.n == 0 || l.lastTerm > p.log.last().term || l.lastTerm == p.log.last().term && l.index >= p.log.n {
		p.voted = l.from
		v.send(letter{kind: voted, from: p.id, to: l.from, term: p.term})
	}
}

// restart crashes a member and starts it again. With all it keeps what the operating system had, and otherwise only what
// was on the disk.
func (v *move) restart(all bool) {
	m, p := v.m, v.p
	if all {
		v.persist()
	}
	if p.log.change(p.log.n) != p.log.change(p.stable) {
		m.did["crash in the midst of a change"]++
	}
	v.s.crashes++
	p.recorded = p.recorded || m.hadSecondVoter(p)
	p.applied, p.commit = p.stable, p.stable
	p.role, p.leader, p.votes = Follower, 0, [modelMembers + 1]bool{}
	p.h, _ = holderWithRules(p.h.config, m.rules)
	past := Past{Bootstrap: m.isAlone(p) && (!p.recorded || m.breach.aloneSkipsWait)}
	if p.recorded {
		past.Longest = modelRecord
	}
	p.g, _ = grantorWithRules(p.g.config, past, v.now(), m.rules)
	m.configure(p, v.s.tick)
}

// deed is what happens on the way to a state.
type deed struct {
	id     uint64 // of the member; 0 if only time passes
	what   string
	number int
	letter letter
}

func (d deed) String() string {
	switch {
	case d.letter.from != 0:
		return fmt.Sprintf("%d %s %v", d.id, d.what, d.letter)
	case d.number != 0:
		return fmt.Sprintf("%d %s %d", d.id, d.what, d.number)
	case d.id != 0:
		return fmt.Sprintf("%d %s", d.id, d.what)
	}
	return d.what
}

// next calls each with the states that can follow, and what happens on the way to each.
func (m *model) next(s *stage, each func(next *stage, by deed)) {
	try := func(id uint64, by deed, do func(v *move)) {
		v := m.edit(s, id)
		do(v)
		by.id = id
		each(v.done(), by)
	}
	if s.tick < m.script.ticks {
		try(0, deed{what: "a tick passes"}, func(v *move) { v.s.tick++ })
	}
	for _, p := range s.parts {
		if !m.matters(p.id) {
			continue
		}
		if p.applied < p.commit {
			try(p.id, deed{what: "applies a change"}, (*move).apply)
		}
		if change, ok := m.mayPropose(p); ok {
			try(p.id, deed{what: "proposes configuration", number: change}, func(v *move) { v.propose(change) })
		}
		if p.role == Leader && s.sends < m.script.sends {
			try(p.id, deed{what: "sends its log"}, (*move).broadcast)
			try(p.id, deed{what: "sends heartbeats"}, (*move).beat)
		}
		if p.role != Leader && p.term < m.script.terms && m.isVoter(p) && p.applied == p.commit && m.open(p, s.tick) {
			try(p.id, deed{what: "campaigns in term", number: int(p.term + 1)}, (*move).campaign)
		}
		if s.crashes < m.script.crashes && (p.role != Follower || p.stable < p.applied || !p.g.Open(now(s.tick))) { // otherwise it loses nothing
			try(p.id, deed{what: "restarts"}, func(v *move) { v.restart(false) })
			if p.stable < p.applied {
				try(p.id, deed{what: "restarts with all that it wrote"}, func(v *move) { v.restart(true) })
			}
		}
	}
	for _, l := range s.letters {
		for _, p := range s.parts {
			if m.isFor(l, p) {
				try(p.id, deed{what: "receives the", letter: l}, func(v *move) { v.receive(l) })
			}
		}
	}
}

// isFor reports whether a member can receive a letter.
func (m *model) isFor(l letter, p *part) bool {
	if l.from == p.id || m.removed(p, l.from) {
		return false
	}
	if l.to != 0 {
		return l.to == p.id
	}
	c := m.script.configs[l.config]
	return slices.Contains(c.Voters, p.id) || l.kind == appendLog && slices.Contains(c.Learners, p.id)
}
