package masterlease

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// The model visits every state of a small cluster whose voters change. The grantors and holders are the real ones. Around
// them is a Raft reduced to what a change needs: terms, votes, a log, and the applied configuration of each member.
//
// A message arrives at any time after its send, any number of times, or never. A member campaigns whenever it may. It
// applies a committed change at any later time. It crashes at any time and starts at once; then it has lost its promises,
// and perhaps the last changes that it had applied. Writes of the log, of terms and of votes are on the disk at once, and so
// is everything that was written before them. All clocks have the same rate; see explore_test.go for the others.

const (
	modelTick = 100 * time.Millisecond
	// modelPromise is counted until the end of the tick after its request, and binds until then. There is no margin.
	modelPromise = 150 * time.Millisecond
	modelRecord  = 151500 * time.Microsecond // by clock.DefaultDrift
	modelMembers = 4
	modelLog     = 7
	modelStates  = 500_000
	noChange     = -1
)

// script is what happens in a model: the configurations that follow each other, and bounds of everything else.
type script struct {
	name    string
	configs []Configuration // leaders propose the second, and then the third
	logged  bool            // all members have the first change, and the leader has committed it and not applied it yet
	ticks   int             // of time
	sends   int             // of a leader's log, or of heartbeats
	crashes int
	terms   uint64 // the last term; the first member leads in term 1
}

// breach is a mistake in what surrounds the grantors and holders. The zero value makes none.
type breach struct {
	aloneSkipsWait bool // a member with itself as the only voter does not wait after a start, although others had a vote
	firstVoters    bool // the holder receives only the first configuration
	unreported     bool // the holder receives no changes before they are applied
	countsRemoved  bool // the promise of a removed voter still counts
	freeLearners   bool // a learner votes in spite of its promise
	aloneIsFree    bool // a member with itself as the only voter campaigns in spite of its promise
	hasty          bool // a leader proposes a change before it has applied an entry of its own term
}

// logged is an entry of the log.
type logged struct {
	term   uint64
	change int // index of the configuration; noChange for any other entry
}

// logs is a log. It is a value, so that messages and members can share and compare it.
type logs struct {
	n       int
	entries [modelLog]logged
}

func (l logs) last() logged { return l.entries[l.n-1] }

func (l logs) with(e logged) logs {
	l.entries[l.n] = e
	l.n++
	return l
}

// agrees returns how many entries both logs have in common.
func (l logs) agrees(other logs) (n int) {
	for n < min(l.n, other.n) && l.entries[n] == other.entries[n] {
		n++
	}
	return n
}

// change returns the index of the newest configuration in the first n entries; noChange without one.
func (l logs) change(n int) int {
	for i := n; i > 0; i-- {
		if c := l.entries[i-1].change; c != noChange {
			return c
		}
	}
	return noChange
}

// letter is a message between members.
type letter struct {
	kind     kind   // an append without a log is a heartbeat
	from, to uint64 // to is 0 in an append and in a request for votes, which are for the others in config
	term     uint64
	log      logs // of an append
	config   int  // the configuration that the sender of an append or of a request for votes had applied
	commit   int  // of an append
	index    int  // of an answer: what it acknowledges; of a request for a vote: the length of the log
	lastTerm uint64
	grants   bool // an answer makes a promise
	tick     int  // of the request that a heartbeat has and an answer echoes
}

func (l letter) isHeartbeat() bool { return l.kind == appendLog && l.log.n == 0 }

func (l letter) String() string {
	switch l.kind {
	case appendLog:
		if l.isHeartbeat() {
			return fmt.Sprintf("heartbeat of %d in term %d and tick %d", l.from, l.term, l.tick)
		}
		return fmt.Sprintf("append of %d in term %d with %d entries, %d committed", l.from, l.term, l.log.n, l.commit)
	case appended:
		return fmt.Sprintf("answer of %d in term %d to %d entries of tick %d, promise %v", l.from, l.term, l.index, l.tick, l.grants)
	case vote:
		return fmt.Sprintf("request of %d for votes in term %d", l.from, l.term)
	}
	return fmt.Sprintf("vote of %d for %d in term %d", l.from, l.to, l.term)
}

// part is one member. It is never changed once it belongs to a state.
type part struct {
	id          uint64
	term, voted uint64
	log         logs
	commit      int
	applied     int
	stable      int // what of applied is on the disk
	recorded    bool
	role        Role
	leader      uint64
	votes       [modelMembers + 1]bool
	match       [modelMembers + 1]int
	h           *Holder
	g           *Grantor
	text        string // for the key of a state
}

// stage is one state of the cluster.
type stage struct {
	tick, sends, crashes int
	elected              uint64 // the highest term with a leader
	acked                int    // what a leader has applied, and so may have acknowledged
	parts                [modelMembers]*part
	letters              []letter
}

// model explores a script with certain rules.
type model struct {
	t      *testing.T
	script script
	breach breach
	rules  rules
	did    map[string]int // how often something happened
	broken string
}

func now(tick int) clock.Instant {
	return clock.Instant{Raw: int64(tick+1) * int64(modelTick), Boot: int64(tick+1) * int64(modelTick)}
}

// config returns the configuration that a member has applied.
func (m *model) config(p *part) (Configuration, bool) {
	c := p.log.change(p.applied)
	if c == noChange {
		return Configuration{}, false
	}
	return m.script.configs[c], true
}

func (m *model) isVoter(p *part) bool {
	c, _ := m.config(p)
	return slices.Contains(c.Voters, p.id)
}

func (m *model) isLearner(p *part) bool {
	c, _ := m.config(p)
	return slices.Contains(c.Learners, p.id)
}

// isAlone reports whether a member is the only voter that it has applied.
func (m *model) isAlone(p *part) bool {
	c, _ := m.config(p)
	return len(c.Voters) == 1 && c.Voters[0] == p.id
}

// hasQuorum reports whether yes holds for a majority of the voters that a member has applied.
func (m *model) hasQuorum(p *part, yes func(id uint64) bool) bool {
	c, _ := m.config(p)
	n := 0
	for _, id := range c.Voters {
		if yes(id) {
			n++
		}
	}
	return n > len(c.Voters)/2
}

// removed reports whether a member knows that another was removed.
func (m *model) removed(p *part, other uint64) bool {
	c, _ := m.config(p)
	if slices.Contains(c.Voters, other) || slices.Contains(c.Learners, other) {
		return false
	}
	for _, e := range p.log.entries[:p.applied] {
		if e.change != noChange && slices.Contains(m.script.configs[e.change].Voters, other) {
			return true
		}
	}
	return false
}

// hadSecondVoter reports whether a member has ever applied a configuration with another voter, as far as its disk knows.
func (m *model) hadSecondVoter(p *part) bool {
	for _, e := range p.log.entries[:p.stable] {
		if e.change != noChange && len(m.script.configs[e.change].Voters) > 1 {
			return true
		}
	}
	return false
}

// open reports whether no promise keeps a member from taking part in an election.
func (m *model) open(p *part, tick int) bool {
	return p.g.Open(now(tick)) || m.breach.freeLearners && m.isLearner(p) || m.breach.aloneIsFree && m.isAlone(p)
}

// begin returns the state in which the first member leads, and all members of the first configuration have its log.
func (m *model) begin() *stage {
	s := &stage{elected: 1, acked: 2}
	first := m.script.configs[0]
	for i := range s.parts {
		p := &part{id: uint64(i + 1)}
		p.g, _ = grantorWithRules(GrantorConfig{}, Past{Bootstrap: true}, now(0), m.rules)
		p.h, _ = holderWithRules(HolderConfig{ID: p.id, Duration: modelPromise}, m.rules)
		if slices.Contains(first.Voters, p.id) || slices.Contains(first.Learners, p.id) {
			p.log = logs{}.with(logged{1, 0}).with(logged{1, noChange})
			p.term, p.voted, p.commit, p.applied, p.stable, p.leader = 1, 1, 2, 2, 2, 1
			m.configure(p, 0)
		}
		// A member that founds a cluster with others, or joins one, has a record from the beginning.
		if p.recorded = p.log.n == 0 || len(first.Voters) > 1; p.recorded {
			p.g.Persisted(modelRecord)
		}
		if p.id == 1 {
			p.role = Leader
			p.h.Observe(m.raftState(p), now(0))
			p.h.Applied(1, now(0))
			for id := range p.match {
				p.match[id] = 2
			}
		}
		if m.script.logged && p.log.n > 0 {
			p.log = p.log.with(logged{1, 1})
			if p.id == 1 {
				p.commit, p.match = 3, [modelMembers + 1]int{3, 3, 3, 3, 3}
				if !m.breach.unreported {
					p.h.Pending(m.script.configs[1], now(0))
				}
			}
		}
		p.text = p.describe(0)
		s.parts[i] = p
	}
	return s
}

func (m *model) raftState(p *part) State { return State{Term: p.term, Leader: p.leader, Role: p.role} }

// configure has the holder use what the member has applied.
func (m *model) configure(p *part, tick int) {
	c, ok := m.config(p)
	switch {
	case !ok:
		return
	case m.breach.firstVoters:
		c = m.script.configs[0]
	case m.breach.countsRemoved:
		// The rules count learners, and the removed voters are among them.
		c.Learners = nil
		for _, e := range p.log.entries[:p.applied] {
			if e.change == noChange {
				continue
			}
			for _, id := range m.script.configs[e.change].Voters {
				if !slices.Contains(c.Voters, id) && !slices.Contains(c.Learners, id) {
					c.Learners = append(c.Learners, id)
				}
			}
		}
	}
	p.h.Configure(c, now(tick))
}

// describe returns everything that distinguishes two parts.
func (p *part) describe(tick int) string {
	b := make([]byte, 0, 160)
	add := func(numbers ...int64) {
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	flag := func(flags ...bool) {
		for _, f := range flags {
			b = append(b, bit(f, 0))
		}
	}
	add(int64(p.term), int64(p.voted), int64(p.commit), int64(p.applied), int64(p.stable), int64(p.role), int64(p.leader))
	b = p.log.describe(b)
	flag(p.recorded)
	if p.role == Candidate {
		flag(p.votes[:]...)
	}
	if p.role == Leader {
		for _, n := range p.match {
			add(int64(n))
		}
		h := p.h
		flag(h.applied, h.pending, h.leaving)
		for id := uint64(1); id <= modelMembers; id++ {
			if e := h.peers[id]; e != nil {
				add(int64(id), int64(e.epoch), e.echo.Raw)
			}
		}
	}
	g := p.g
	add(int64(g.promise.leader), int64(g.promise.term), g.promise.stamp.Raw)
	if opens, closed := g.Opens(now(tick)); closed { // it makes no difference when a promise ended
		add(opens.Raw)
	}
	return string(b)
}

func (l logs) describe(b []byte) []byte {
	b = append(b, byte(l.n))
	for _, e := range l.entries[:l.n] {
		b = append(b, byte(e.term), byte(e.change+1))
	}
	return b
}

func (s *stage) key() string {
	b := make([]byte, 0, 512)
	b = append(b, byte(s.tick), byte(s.sends), byte(s.crashes), byte(s.elected), byte(s.acked))
	for _, p := range s.parts {
		b = append(b, byte(len(p.text)))
		b = append(b, p.text...)
	}
	for _, l := range s.letters {
		b = append(b, byte(l.kind), byte(l.from), byte(l.to), byte(l.term), byte(l.config), byte(l.commit), byte(l.index), byte(l.lastTerm), byte(l.tick))
		b = append(b, bit(l.grants, 0))
		if l.kind == appendLog {
			b = l.log.describe(b)
		}
	}
	return string(b)
}

// move is one change of a state: of one member, and of the letters on their way.
type move struct {
	m *model
	s *stage
	p *part // nil if only time passes
}

func (m *model) edit(s *stage, id uint64) *move {
	c := *s
	c.letters = slices.Clip(c.letters)
	v := &move{m: m, s: &c}
	if id != 0 {
		p := *s.parts[id-1]
		h, g := *p.h, *p.g
		h.peers = maps.Clone(h.peers)
		for id, e := range h.peers { // order: each is copied
			copied := *e
			h.peers[id] = &copied
		}
		h.ends = nil
		p.h, p.g = &h, &g
		v.p = &p
		c.parts[id-1] = &p
	}
	return v
}

func (v *move) now() clock.Instant { return now(v.s.tick) }

// send adds a letter, unless it is on its way already. The newest answer of a member in a term replaces its earlier ones: a
// leader learns nothing more from those.
func (v *move) send(l letter) {
	older := func(o letter) bool {
		return l.kind == appended && o.kind == appended && o.from == l.from && o.to == l.to && o.term == l.term && o.index <= l.index && (!o.grants || l.grants && o.tick <= l.tick)
	}
	if slices.ContainsFunc(v.s.letters, older) {
		v.s.letters = slices.DeleteFunc(slices.Clone(v.s.letters), older)
	}
	i, there := slices.BinarySearchFunc(v.s.letters, l, letter.compare)
	if !there {
		v.s.letters = slices.Insert(slices.Clone(v.s.letters), i, l)
	}
}

func (l letter) compare(o letter) int {
	return cmp.Or(
		cmp.Compare(l.kind, o.kind), cmp.Compare(l.from, o.from), cmp.Compare(l.to, o.to), cmp.Compare(l.term, o.term),
		cmp.Compare(l.config, o.config), cmp.Compare(l.commit, o.commit), cmp.Compare(l.index, o.index),
		cmp.Compare(l.lastTerm, o.lastTerm), cmp.Compare(l.tick, o.tick),
		cmp.Compare(bit(l.grants, 0), bit(o.grants, 0)), l.log.compare(o.log),
	)
}

func (l logs) compare(o logs) int {
	if c := cmp.Compare(l.n, o.n); c != 0 {
		return c
	}
	return slices.CompareFunc(l.entries[:l.n], o.entries[:o.n], func(a, b logged) int {
		return cmp.Or(cmp.Compare(a.term, b.term), cmp.Compare(a.change, b.change))
	})
}

// bit returns a flag as a bit at a place.
func bit(flag bool, place int) byte {
	if flag {
		return 1 << place
	}
	return 0
}

// persist writes what raft must not lose. Whatever was written before is on the disk with it.
func (v *move) persist() { v.p.stable = v.p.applied }

func (v *move) fail(format string, args ...any) {
	if v.m.broken == "" {
		v.m.broken = fmt.Sprintf(format, args...)
	}
}

// done ends a move.
func (v *move) done() *stage {
	if v.p != nil {
		v.p.text = v.p.describe(v.s.tick)
	} else {
		for i, p := range v.s.parts {
			later := *p
			later.text = p.describe(v.s.tick)
			v.s.parts[i] = &later
		}
	}
	v.s.dropUseless(v.m)
	return v.s
}

// dropUseless removes letters that can change nothing any more.
func (s *stage) dropUseless(m *model) {
	useless := func(l letter) bool {
		for _, p := range s.parts {
			if m.isFor(l, p) && p.learnsFrom(l) {
				return false
			}
		}
		return true
	}
	if slices.ContainsFunc(s.letters, useless) {
		s.letters = slices.DeleteFunc(slices.Clone(s.letters), useless)
	}
}

// learnsFrom reports whether a letter can still change something at a member.
func (p *part) learnsFrom(l letter) bool {
	switch l.kind {
	case appendLog:
		if p.term != l.term || p.role != Follower || p.leader != l.from {
			return p.term <= l.term
		}
		if l.isHeartbeat() {
			return p.g.promise.term != l.term || newer(now(l.tick), p.g.promise.stamp)
		}
		return p.log.agrees(l.log) < l.log.n || p.commit < l.commit
	case appended:
		if p.term != l.term || p.role != Leader {
			return false
		}
		e := p.h.peers[l.from]
		return l.index > p.match[l.from] || l.grants && (e == nil || e.epoch == 0 || newer(now(l.tick), e.echo))
	case vote:
		return p.term < l.term
	}
	return p.term == l.term && p.role == Candidate && !p.votes[l.from]
}

// matters reports whether a member takes part in the script.
func (m *model) matters(id uint64) bool {
	return slices.ContainsFunc(m.script.configs, func(c Configuration) bool {
		return slices.Contains(c.Voters, id) || slices.Contains(c.Learners, id)
	})
}
