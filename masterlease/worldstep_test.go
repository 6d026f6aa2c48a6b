package masterlease

import (
	"slices"
	"time"
)

// receive processes one message.
func (m *member) receive(msg message) {
	var h Header
	if msg.header != nil {
		var err error
		if h, err = ParseHeader(msg.header); err != nil {
			m.w.fail("member %d cannot read the header of a message: %v", m.id, err)
			return
		}
	}
	now := m.clocks.Now()
	switch msg.kind {
	case vote:
		m.noteGate(h.Release)
		if !m.w.variant.noVoteGate && !m.grantor.Vote(Ballot{Candidate: msg.from, Term: msg.term, Release: h.Release, Message: msg}, m.holder.Valid(now), now) {
			m.w.seen.parked++
			return
		}
		m.receiveVote(msg)
	case voted:
		if !m.w.variant.noVoteGate && !m.grantor.VoteAnswer(now) {
			return
		}
		if msg.term > m.term {
			m.become(msg.term, 0)
		} else if msg.term == m.term && m.role == Candidate && msg.index == 1 {
			m.votes[msg.from] = true
			m.countVotes()
		}
	case appendLog:
		m.receiveAppend(msg, h)
	case appended:
		m.receiveAppended(msg, h)
	case timeoutNow:
		if msg.term != m.term || m.role == Leader || !m.w.variant.noCampaignGate && !m.grantor.TimeoutNow(h.Release, now) {
			return
		}
		m.carried = h.Release
		m.w.seen.handovers++
		m.campaign()
	case releaseAll:
		m.grantor.Release(*h.Release)
	}
}

func (m *member) noteGate(r *Release) {
	if r != nil && !m.grantor.Open(m.clocks.Now()) && m.grantor.coveredBy(r) {
		m.w.seen.covered++
	}
}

func (m *member) receiveVote(msg message) {
	if msg.term > m.term {
		m.become(msg.term, 0)
	}
	upToDate := msg.lastTerm > m.lastTerm() || msg.lastTerm == m.lastTerm() && msg.index >= len(m.log)
	given := 0
	if msg.term == m.term && m.role == Follower && m.leader == 0 && (m.voted == 0 || m.voted == msg.from) && upToDate {
		m.noteVote()
		m.voted, given = msg.from, 1
	}
	m.send(message{kind: voted, to: msg.from, term: m.term, index: given}, Header{})
}

func (m *member) receiveAppend(msg message, h Header) {
	now := m.clocks.Now()
	if m.holder.HearLeader(msg.term, now) && !m.w.variant.broken() {
		m.w.fail("member %d sees a later leader while it has authority", m.id)
	}
	if msg.term >= m.term {
		m.become(msg.term, msg.from)
		m.take(msg)
	}
	if h.Request != nil {
		m.hear(msg, *h.Request)
	}
	answer := message{kind: appended, to: msg.from, term: m.term}
	if msg.term == m.term {
		answer.index = len(msg.log)
	}
	term := m.term
	if m.w.variant.answersOld {
		term, answer.term = msg.term, msg.term
	}
	var back Header
	if g, ok := m.grantor.Grant(msg.from, term, now); ok {
		back.Grant = &g
	}
	m.send(answer, back)
}

// take makes the log equal to the leader's.
func (m *member) take(msg message) {
	same := 0
	for same < min(len(m.log), len(msg.log)) && m.log[same].term == msg.log[same].term {
		same++
	}
	if same < len(msg.log) {
		if same < m.commit {
			m.w.fail("member %d loses what is committed: the raft of this test is wrong", m.id)
			return
		}
		m.log = msg.log
	}
	m.applyTo(msg.commit)
}

func (m *member) hear(msg message, r Request) {
	now := m.clocks.Now()
	outcome := m.grantor.Hear(Heard{From: msg.from, Term: msg.term, Request: r}, m.state(), now)
	if longest, needed := m.grantor.ToPersist(); needed && m.w.chance(m.w.disk) {
		m.longest = longest
		m.grantor.Persisted(longest)
	}
	if outcome != Promised {
		m.w.seen.stale++
		return
	}
	to := Release{Leader: msg.from, Term: r.Term, Epoch: r.Epoch}
	if last, ok := m.stamps[to]; ok && !newer(r.Stamp, last) {
		m.w.fail("member %d extends a promise for a request that is no newer", m.id)
	}
	m.stamps[to] = r.Stamp
	m.owe(to, r.Duration)
}

// owe records a promise in real time. A member that promises to a later leader, or in a later epoch, owes
// that leader the rest of its earlier promises too. The earlier leader can no longer have authority.
func (m *member) owe(to Release, d time.Duration) {
	w := m.w
	duties := []duty{{to: to, until: w.now + d}}
	for _, old := range w.duties[m.id] {
		if old.until > w.now && w.released[[2]uint64{old.to.Leader, old.to.Term}] < old.to.Epoch {
			duties[0].until = max(duties[0].until, old.until)
		}
	}
	w.duties[m.id] = duties
}

func (m *member) receiveAppended(msg message, h Header) {
	if msg.term > m.term {
		m.become(msg.term, 0)
	}
	if h.Grant != nil {
		m.holder.Receive(msg.from, *h.Grant, m.clocks.Now())
	}
	if msg.term == m.term && m.role == Leader {
		m.peers[msg.from] = max(m.peers[msg.from], msg.index)
		m.advance()
	}
}

// act does what a member does by itself in one step.
func (m *member) act() {
	w, now := m.w, m.clocks.Now()
	for _, b := range m.grantor.Unpark(m.holder.Valid(now), now) {
		m.receiveVote(b.Message.(message))
	}
	if m.role != Leader {
		if w.now > m.patience && w.chance(w.eager) && (w.variant.noCampaignGate || m.grantor.Campaign(now) == nil) {
			m.campaign()
		}
		return
	}
	w.seen.led++
	switch {
	case m.transferee != 0 && w.now > m.handing+heartbeat*3:
		m.transferee = 0
		w.seen.aborts++
		m.observe()
	case m.transferee == 0 && w.chance(w.handover):
		m.handOver()
	case m.commit == len(m.log) && m.log[m.commit-1].term == m.term && w.chance(w.changes+0.02):
		m.change()
	case len(m.log) < 200 && w.chance(0.05):
		m.propose(nil)
	}
	if m.role == Leader && w.now >= m.beat {
		m.beat = w.now + heartbeat
		m.broadcast()
	}
}

func (m *member) handOver() {
	m.transferee, m.handing = 1+m.w.rng.Uint64N(pool), m.w.now
	m.observe()
	var h Header
	if r, ok := m.holder.Released(); ok {
		h.Release = &r
	}
	m.send(message{kind: timeoutNow, to: m.transferee, term: m.term}, h)
}

// change proposes the next configuration: into joint consensus, or out of it.
func (m *member) change() {
	w := m.w
	if len(m.config.Outgoing) > 0 {
		m.propose(&Configuration{Voters: m.config.Voters, Learners: m.config.Learners})
		return
	}
	if !w.chance(w.changes * 10) {
		return
	}
	next := &Configuration{Outgoing: m.config.Voters}
	for id := uint64(1); id <= pool; id++ {
		switch w.rng.IntN(3) {
		case 0, 1:
			next.Voters = append(next.Voters, id)
		case 2:
			next.Learners = append(next.Learners, id)
		}
	}
	if len(next.Voters) == 0 {
		next.Voters = []uint64{m.id}
	}
	w.seen.changes++
	m.propose(next)
}

// pass advances a member's clocks by one step of real time, and may change their rates.
func (m *member) pass() {
	w := m.w
	if w.now >= m.until {
		switch {
		case m.trouble != "":
			// Both clocks must be good for longer than a promise before the next trouble starts.
			m.trouble, m.until, m.calm = "", w.now, w.now+4*usual
			m.setRate()
		case w.now >= m.calm && w.chance(w.trouble):
			m.disturb()
		}
		if m.trouble == "" && w.chance(0.01) {
			m.setRate()
		}
	}
	m.clocks.AdvanceBy(time.Duration(float64(step)*m.rates[0]), time.Duration(float64(step)*m.rates[1]))
}

// setRate chooses how fast good clocks run: mostly at the limit of the bound.
func (m *member) setRate() {
	const bound = float64(worldDrift) / 1e6
	rate := []float64{1 - bound, 1 - bound, 1, 1 + bound, 1 + bound}[m.w.rng.IntN(5)] * m.w.variant.factor(m.w)
	m.rates = [2]float64{rate, rate}
}

func (m *member) disturb() {
	w := m.w
	m.setRate()
	switch w.rng.IntN(3) {
	case 0:
		m.trouble, m.rates[0] = "suspend", 0
		m.until = w.now + step*time.Duration(w.rng.IntN(300))
		m.stopped = m.until
		w.seen.suspends++
	case 1:
		m.trouble = "slew"
		m.rates[1] *= []float64{0.5, 2}[w.rng.IntN(2)]
		m.until = w.now + step*time.Duration(100+w.rng.IntN(300))
		w.seen.slews++
	case 2:
		// Only the boot clock has the right rate, as on a machine that sleeps again and again.
		m.trouble = "naps"
		m.rates[0] *= []float64{0.5, 2}[w.rng.IntN(2)]
		m.until = w.now + step*time.Duration(100+w.rng.IntN(300))
		w.seen.slews++
	}
}

// check fails the world if a promise of the package does not hold now.
func (w *world) check() {
	valid := 0
	for _, m := range w.members {
		a := m.holder.Authority()
		if m.holder.fault != NoFault && !w.variant.broken() {
			w.fail("member %d distrusts its clocks (%v), which are inside the bound", m.id, m.holder.fault)
		}
		if !m.holder.Valid(m.clocks.Now()) {
			continue
		}
		valid++
		w.seen.valid++
		if w.elected > a.Term {
			w.fail("member %d has authority for term %d, and a leader of term %d was elected", m.id, a.Term, w.elected)
		}
		if m.commit < w.acked {
			w.fail("member %d has authority and has applied %d entries, but %d were acknowledged", m.id, m.commit, w.acked)
		}
		if w.released[[2]uint64{m.id, a.Term}] >= a.Epoch {
			w.fail("member %d has authority for term %d, epoch %d, which it has released", m.id, a.Term, a.Epoch)
		}
	}
	if valid > 1 {
		w.fail("%d members have authority", valid)
	}
}

// run runs the world until some real time, or until the first failure.
func (w *world) run(end time.Duration) {
	for w.now = 0; w.now < end && w.failure == ""; w.now += step {
		w.faults()
		for _, m := range w.members {
			m.pass()
		}
		w.check()
		w.deliver()
		for _, m := range w.members {
			if w.now < m.stopped {
				continue
			}
			inbox := m.inbox
			m.inbox = nil
			w.rng.Shuffle(len(inbox), func(i, j int) { inbox[i], inbox[j] = inbox[j], inbox[i] })
			for _, msg := range inbox {
				m.receive(msg)
				w.check()
			}
			m.act()
			w.check()
		}
	}
}

func (w *world) faults() {
	if w.chance(0.02) {
		w.cut[1+w.rng.IntN(pool)] = w.chance(0.2)
	}
	if w.chance(0.005) {
		w.split = w.rng.IntN(2) * w.rng.IntN(1<<pool)
	}
	for _, m := range w.members {
		p := w.crash
		if m.role == Leader {
			p *= 2
		}
		switch {
		case w.now < m.stopped:
		case w.chance(p):
			w.seen.restarts++
			m.start()
		case m.role == Leader && w.chance(0.003):
			w.cut[m.id] = true
		case w.chance(0.001):
			w.seen.pauses++
			m.stopped = w.now + step*time.Duration(w.rng.IntN(300))
		}
	}
}

func (w *world) deliver() {
	w.network = slices.DeleteFunc(w.network, func(msg message) bool {
		if msg.deliverAt > w.now {
			return false
		}
		m := w.members[msg.to-1]
		apart := (w.split>>(msg.from-1)^w.split>>(msg.to-1))&1 != 0
		if !apart && !w.cut[msg.from] && !w.cut[msg.to] && len(m.inbox) < 200 {
			m.inbox = append(m.inbox, msg)
		}
		return true
	})
}
