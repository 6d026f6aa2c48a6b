package masterlease

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// The world is a cluster with the real grantors and holders, a plain Raft around them, and real time, which no member can
// see. Clocks run at the limits of the drift bound, are suspended and are slewed. Messages are lost, duplicated, reordered
// and very late. Members crash and pause. Leaders hand over, abort handovers, and change the configuration. The Raft here
// does not protect leaders: every member that may campaign does so. Only the leases prevent a second leader.

const (
	step       = 10 * time.Millisecond // of real time
	worldDrift = clock.Drift(200_000)
	usual      = time.Second
	heartbeat  = 100 * time.Millisecond
	pool       = 5 // number of members; the first three found the cluster
)

type logEntry struct {
	term   uint64
	config *Configuration
}

type kind uint8

const (
	appendLog kind = iota
	appended
	vote
	voted
	timeoutNow
	releaseAll
)

type message struct {
	kind      kind
	from, to  uint64
	term      uint64
	log       []logEntry // of an append: the whole log
	index     int        // of an answer: length of the common log; of a vote: the last index
	lastTerm  uint64
	commit    int
	transfer  bool
	header    []byte
	deliverAt time.Duration
}

// member is one member of the world. Fields marked durable survive a crash.
type member struct {
	w  *world
	id uint64

	term    uint64         // durable
	voted   uint64         // durable
	log     []logEntry     // durable, shared with messages and never changed in place
	commit  int            // durable
	longest time.Duration  // durable: the record of the longest promise
	founder bool           // durable: has not started yet
	clocks  *clock.Manual  // survive a crash
	rates   [2]float64     // raw, boot
	trouble string         // what is wrong with the clocks; empty if nothing is
	until   time.Duration  // real time at which the trouble ends
	calm    time.Duration  // real time before which no other trouble starts
	stopped time.Duration  // the process is paused until this real time
	inbox   []message      // messages that arrived during the pause
	config  *Configuration // applied
	peers   map[uint64]int // match

	role       Role
	leader     uint64
	votes      map[uint64]bool
	transferee uint64
	handing    time.Duration // since when it hands over
	beat       time.Duration // next heartbeat
	patience   time.Duration // when it may campaign again
	carried    *Release      // the release that came with the order to campaign
	grantor    *Grantor
	holder     *Holder
	stamps     map[Release]clock.Instant // newest promised stamp, by leader, term and epoch
}

// duty is a promise of a member, in real time.
type duty struct {
	to    Release
	until time.Duration
}

type world struct {
	rng      *rand.Rand
	now      time.Duration
	members  []*member
	network  []message
	variant  variant
	cut      [pool + 1]bool
	split    int    // bit mask of the members on one side of a partition
	elected  uint64 // highest term
	acked    int    // highest index that a leader committed
	released map[[2]uint64]uint64
	duties   map[uint64][]duty
	failure  string
	seen     counts
	lax      int     // which side has too low a configured bound: 1 the holders, 2 the grantors
	pendings bool    // leaders report pending configurations to the holder
	eager    float64 // chance that a member that may campaign does so in a step
	disk     float64 // chance that a disk writes a record in a step
	far      int     // how many steps a message takes at most
	handover float64 // chance that a leader hands over in a step
	crash    float64 // chance that a process crashes in a step
	trouble  float64 // chance that the trouble of a clock starts in a step
	changes  float64 // chance that a leader changes the configuration in a step
}

// The styles of worlds differ in what happens often.
const (
	mixed     = iota
	clockwise // trouble with clocks
	reforming // changes of configurations
	styles
)

type counts struct {
	elections, valid, handovers, aborts, restarts, suspends, slews, pauses, changes, parked, covered, stale, led int
}

func newWorld(seed uint64, style int, v variant) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, uint64(style))), variant: v,
		released: make(map[[2]uint64]uint64), duties: make(map[uint64][]duty),
		lax: int(seed / 3 % 3), pendings: seed%2 == 0,
		eager: []float64{0.05, 0.5}[seed%2], disk: []float64{0.5, 0.05}[seed/2%2], far: []int{1, 5}[seed/4%2],
		handover: []float64{0.01, 0.05}[seed/8%2], crash: []float64{0.0008, 0.0008, 0.0008, 0.004}[seed/16%4],
		trouble: 0.002, changes: 0.02,
	}
	switch style {
	case clockwise:
		w.changes, w.handover, w.crash, w.eager, w.far = 0, 0.001, 0.0002, 0.5, 1
	case reforming:
		w.changes, w.handover, w.crash, w.trouble, w.pendings = 0.2, 0.001, 0.0002, 0.0005, false
	}
	first := &Configuration{Voters: []uint64{1, 2, 3}}
	for id := uint64(1); id <= pool; id++ {
		m := &member{w: w, id: id, founder: true, rates: [2]float64{1, 1}}
		m.log, m.commit = []logEntry{{config: first}}, 1
		m.clocks = clock.NewManual(clock.Instant{Raw: w.rng.Int64N(1e12), Boot: w.rng.Int64N(1e12)})
		w.members = append(w.members, m)
		m.start()
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	if w.failure == "" {
		w.failure = fmt.Sprintf("at %v: ", w.now) + fmt.Sprintf(format, args...)
	}
}

func (w *world) chance(p float64) bool { return w.rng.Float64() < p }

// start starts the process of a member. Everything that is not durable is new.
func (m *member) start() {
	w := m.w
	r := defaultRules
	if w.variant.bend != nil {
		w.variant.bend(&r)
	}
	grants, holds := worldDrift, worldDrift
	switch w.lax {
	case 1:
		holds = 1
	case 2:
		grants = 1
	}
	durations := []time.Duration{usual, usual, usual / 2}
	var err error
	m.grantor, err = grantorWithRules(GrantorConfig{Drift: grants, MaxDuration: 2 * usual, Domain: m.id}, Past{Bootstrap: m.founder, Longest: m.longest}, m.clocks.Now(), r)
	if err != nil {
		panic(err)
	}
	m.holder, err = holderWithRules(HolderConfig{ID: m.id, Drift: holds, Duration: durations[w.rng.IntN(3)]}, r)
	if err != nil {
		panic(err)
	}
	m.founder = false
	m.role, m.leader, m.votes, m.transferee, m.carried = Follower, 0, nil, 0, nil
	m.stamps = make(map[Release]clock.Instant)
	m.config = nil
	m.applyConfig()
}

// applyConfig passes the newest committed configuration to the holder.
func (m *member) applyConfig() {
	var c *Configuration
	for _, e := range m.log[:m.commit] {
		if e.config != nil {
			c = e.config
		}
	}
	if c != m.config {
		m.config = c
		if m.w.variant.oldConfig {
			c = m.log[0].config
		}
		m.holder.Configure(*c, m.clocks.Now())
	}
}

func (m *member) isVoter() bool {
	return slices.Contains(m.config.Voters, m.id) || slices.Contains(m.config.Outgoing, m.id)
}

// quorum reports whether the members for which yes holds are a quorum of the applied configuration.
func (m *member) quorum(yes func(id uint64) bool) bool {
	for _, set := range [][]uint64{m.config.Voters, m.config.Outgoing} {
		n := 0
		for _, id := range set {
			if yes(id) {
				n++
			}
		}
		if len(set) > 0 && n <= len(set)/2 {
			return false
		}
	}
	return true
}

func (m *member) state() State {
	return State{Term: m.term, Leader: m.leader, Role: m.role, Transferee: m.transferee}
}

// observe passes the state of raft to the holder, and records a release.
func (m *member) observe() {
	if r, ok := m.holder.Observe(m.state(), m.clocks.Now()); ok {
		m.noteRelease(r)
		if m.role != Leader { // a leader that steps down releases its promises
			for _, other := range m.w.members {
				m.send(message{kind: releaseAll, to: other.id, term: r.Term}, Header{Release: &r})
			}
		}
	}
}

func (m *member) noteRelease(r Release) {
	key := [2]uint64{r.Leader, r.Term}
	m.w.released[key] = max(m.w.released[key], r.Epoch)
}

func (m *member) send(msg message, h Header) {
	w := m.w
	if msg.to == m.id {
		return
	}
	msg.from = m.id
	if !h.Empty() {
		msg.header = h.AppendTo(nil)
	}
	for range 1 + w.rng.IntN(8)/7 { // some messages are duplicated
		if w.chance(0.1) {
			continue
		}
		delay := step * time.Duration(1+w.rng.IntN(w.far))
		if w.chance(0.1) || msg.kind == timeoutNow && w.chance(0.5) || msg.transfer && w.chance(0.3) {
			delay = step * time.Duration(w.rng.IntN(300))
		}
		msg.deliverAt = w.now + delay
		w.network = append(w.network, msg)
	}
}

// become makes the member a follower in a term, and forgets its vote if the term is later.
func (m *member) become(term, leader uint64) {
	if term > m.term {
		m.term, m.voted, m.carried = term, 0, nil
	}
	m.role, m.leader, m.votes, m.transferee = Follower, leader, nil, 0
	m.observe()
}

func (m *member) campaign() {
	if !m.isVoter() || m.role == Leader {
		return
	}
	m.noteVote()
	carried := m.carried
	m.patience = m.w.now + step*time.Duration(2*m.w.far+2+m.w.rng.IntN(10))
	m.term++
	m.voted, m.role, m.leader, m.votes = m.id, Candidate, 0, map[uint64]bool{m.id: true}
	m.observe()
	for _, other := range m.w.members {
		m.send(message{kind: vote, to: other.id, term: m.term, index: len(m.log), lastTerm: m.lastTerm(), transfer: carried != nil}, Header{Release: carried})
	}
	m.carried = nil
	m.countVotes()
}

func (m *member) lastTerm() uint64 { return m.log[len(m.log)-1].term }

// noteVote fails the world if the member votes in spite of a promise, measured in real time.
func (m *member) noteVote() {
	w := m.w
	for _, d := range w.duties[m.id] {
		if d.until > w.now && w.released[[2]uint64{d.to.Leader, d.to.Term}] < d.to.Epoch {
			w.fail("member %d votes, but has promised %+v not to until %v", m.id, d.to, d.until)
		}
	}
}

func (m *member) countVotes() {
	if m.role != Candidate || !m.quorum(func(id uint64) bool { return m.votes[id] }) {
		return
	}
	w := m.w
	if !m.grantor.Elected(m.clocks.Now()) && !w.variant.ungated() {
		w.fail("member %d is elected with a promise outstanding", m.id)
	}
	m.role, m.leader, m.beat, m.peers = Leader, m.id, 0, make(map[uint64]int)
	w.elected = max(w.elected, m.term)
	w.seen.elections++
	m.observe()
	if w.pendings {
		m.notePending()
	}
	m.propose(nil)
}

// notePending passes the configuration changes in this new leader's log to the holder.
func (m *member) notePending() {
	for _, e := range m.log[m.commit:] {
		if e.config != nil {
			m.holder.Pending(*e.config, m.clocks.Now())
		}
	}
}

func (m *member) propose(c *Configuration) {
	m.log = append(slices.Clip(m.log), logEntry{term: m.term, config: c})
	if c != nil && m.w.pendings {
		m.holder.Pending(*c, m.clocks.Now())
	}
	m.advance()
	m.beat = 0
}

// advance commits and applies what a quorum has stored.
func (m *member) advance() {
	for n := len(m.log); n > m.commit; n-- {
		if m.log[n-1].term == m.term && m.quorum(func(id uint64) bool { return id == m.id || m.peers[id] >= n }) {
			m.applyTo(n)
			m.w.acked = max(m.w.acked, n)
			m.advance() // a new configuration may have a smaller quorum
			return
		}
	}
}

func (m *member) applyTo(n int) {
	if n <= m.commit {
		return
	}
	m.commit = n
	m.applyConfig()
	m.holder.Applied(m.log[n-1].term, m.clocks.Now())
	if m.role == Leader && !m.isVoter() {
		m.become(m.term, 0) // raft steps down on removal
	}
}

func (m *member) broadcast() {
	now := m.clocks.Now()
	var h Header
	if r, ok := m.holder.Request(now); ok {
		h.Request = &r
	}
	for _, other := range m.w.members {
		if m.w.chance(0.5) { // a heartbeat: a commit index that the other member is known to have
			m.send(message{kind: appendLog, to: other.id, term: m.term, commit: min(m.commit, m.peers[other.id])}, h)
			continue
		}
		m.send(message{kind: appendLog, to: other.id, term: m.term, log: m.log, commit: m.commit}, h)
	}
}
