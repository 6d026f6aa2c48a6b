package masterlease

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// DefaultMaxDuration is the longest promise that a member makes.
	DefaultMaxDuration = 10 * time.Second
	// DefaultMaxParked is how many candidates can have a request parked.
	DefaultMaxParked = 64
)

// GrantorConfig is how a member makes promises. The zero value of a field means its default.
type GrantorConfig struct {
	// Drift is the bound on clock rates; the leader's is taken if it is larger.
	Drift clock.Drift
	// MaxDuration bounds what a leader may ask for. A longer request is granted for this long.
	MaxDuration time.Duration
	// MaxParked bounds how many candidates can have a request for votes parked.
	MaxParked int
	// Domain names the clock domain, so that the leader can tell a drifting clock from another one. Any
	// number that differs from boot to boot will do.
	Domain uint64
}

func (c GrantorConfig) validate() error {
	var errs []error
	if err := c.Drift.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("masterlease: %w", err))
	}
	if c.MaxDuration < 0 || c.MaxDuration > maxDuration {
		errs = append(errs, fmt.Errorf("masterlease: the longest promise of %v is out of range: use up to %v", c.MaxDuration, maxDuration))
	}
	if c.MaxParked < 0 {
		errs = append(errs, fmt.Errorf("masterlease: MaxParked is %d: must not be negative", c.MaxParked))
	}
	return errors.Join(errs...)
}

func (c GrantorConfig) withDefaults() GrantorConfig {
	c.Drift = cmp.Or(c.Drift, clock.DefaultDrift)
	c.MaxDuration = cmp.Or(c.MaxDuration, DefaultMaxDuration)
	c.MaxParked = cmp.Or(c.MaxParked, DefaultMaxParked)
	return c
}

// Past is what a member knows of its earlier lives when it starts.
type Past struct {
	// Bootstrap says that the member takes part in founding a cluster by explicit order, so nothing can have
	// been promised. An empty folder proves nothing of the kind.
	Bootstrap bool
	// Longest is what was last persisted for [Grantor.ToPersist]; 0 if there is no record. A member without
	// one takes it that it promised the longest it ever would.
	Longest time.Duration
}

// promise is what a member has promised, and to whom. It stays as the memory of the newest stamp and epoch after
// it has ended.
type promise struct {
	leader, term, epoch uint64
	stamp               clock.Instant // the newest stamp, on the leader's clocks
	reading             clock.Instant // when it was processed, on our own
	duration            time.Duration
	drift               clock.Drift
	until               clock.Instant
	binds               bool // was made, and was not released
	released            bool // for this epoch
}

// Grantor is what a member has promised to leaders, and the gate in front of its votes. Every member has one,
// learners and leaders too. It is not safe for concurrent use.
type Grantor struct {
	config   GrantorConfig
	rules    rules
	promise  promise
	holdOff  clock.Instant // until then no vote, because of what may have been promised before the start
	holdsOff bool
	recorded time.Duration // the longest promise on record
	wanted   time.Duration // the longest that was asked for
	parked   []Ballot
	stats    GrantorStats
}

// NewGrantor returns the grantor of a member that starts now.
func NewGrantor(c GrantorConfig, past Past, now clock.Instant) (*Grantor, error) {
	return grantorWithRules(c, past, now, defaultRules)
}

func grantorWithRules(c GrantorConfig, past Past, now clock.Instant, l rules) (*Grantor, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if past.Longest < 0 {
		return nil, fmt.Errorf("masterlease: the longest promise on record is %v: the record is damaged; remove it, and the member waits for the longest promise there can be", past.Longest)
	}
	g := &Grantor{config: c.withDefaults(), rules: l, recorded: past.Longest}
	if past.Bootstrap {
		return g, nil
	}
	// No leader can have got more than MaxDuration, whatever drift it was configured with.
	longest := cmp.Or(past.Longest, clock.MaxDrift.GrantPromise(g.config.MaxDuration))
	g.holdOff, g.holdsOff = now.Add(l.holdOff(longest)), true
	return g, nil
}

// Heard is an append, a heartbeat or a snapshot that raft has processed, with the request beside it.
type Heard struct {
	From    uint64
	Term    uint64 // of the raft message
	Request Request
}

// Outcome is what became of a request.
type Outcome uint8

const (
	// Refused: the message was not of the leader that this member follows in this term, or makes no sense.
	Refused Outcome = iota
	// Stale: a request as new was processed before, or its epoch is over.
	Stale
	// Unpersisted: the promise would be longer than any on record. Persist [Grantor.ToPersist], say so, and
	// the next request is granted.
	Unpersisted
	// Promised: the promise was made or extended.
	Promised
)

func (o Outcome) String() string {
	return [...]string{"refused", "stale", "unpersisted", "promised"}[o]
}

// Hear takes a request after raft has processed the message it came with, which left raft in state s. Call it
// before any answer to that message leaves (F1 to F3).
func (g *Grantor) Hear(m Heard, s State, now clock.Instant) Outcome {
	outcome := g.decide(m, s, now)
	g.stats.Heard[outcome]++
	return outcome
}

func (g *Grantor) decide(m Heard, s State, now clock.Instant) Outcome {
	r, p := m.Request, &g.promise
	if !g.rules.fromOwnLeader(m, s) || m.From == 0 || r.validate() != nil {
		return Refused
	}
	same := p.term == r.Term && p.leader == m.From
	switch {
	case p.term > r.Term, p.term == r.Term && p.leader != m.From:
		return Refused // raft has one leader a term, and terms do not go back
	case same && r.Epoch < p.epoch, same && r.Epoch == p.epoch && p.released:
		return Stale
	case same && r.Epoch == p.epoch && !g.rules.newer(r.Stamp, p.stamp):
		return Stale
	}
	duration, drift := min(r.Duration, g.config.MaxDuration), max(r.Drift, g.config.Drift)
	length := g.rules.promiseLength(drift, duration)
	g.wanted = max(g.wanted, length)
	if g.rules.needsRecord(length, g.recorded) {
		return Unpersisted
	}
	until := now.Add(length)
	if p.binds {
		until = later(until, p.until) // what was promised to an earlier leader is kept as well
	}
	*p = promise{
		leader: m.From, term: r.Term, epoch: r.Epoch, stamp: r.Stamp, reading: now,
		duration: duration, drift: drift, until: until, binds: true,
	}
	g.dropObsolete()
	return Promised
}

// Grant returns what to put beside an answer to the given member in the given term, if anything: call it when the
// answer leaves (F4). It tells of what was promised before, and promises nothing itself.
func (g *Grantor) Grant(to, term uint64, now clock.Instant) (Grant, bool) {
	p := &g.promise
	if !p.binds || p.leader != to || p.term != term {
		return Grant{}, false
	}
	g.stats.Sent++
	return Grant{
		Term: p.term, Epoch: p.epoch, Echo: p.stamp, Duration: p.duration, Drift: p.drift,
		Remaining: max(0, now.Until(p.until)), Reading: p.reading, Domain: g.config.Domain,
	}, true
}

// Release takes a release that came alone, and reports whether it ended a promise (F5). It never shortens the
// wait after a start.
func (g *Grantor) Release(r Release) bool {
	if !g.coveredBy(&r) {
		return false
	}
	ended := g.promise.binds
	g.promise.binds, g.promise.released, g.promise.epoch = false, true, r.Epoch
	if ended {
		g.stats.Released++
	}
	return ended
}

func (g *Grantor) coveredBy(r *Release) bool {
	p := &g.promise
	return r != nil && p.term != 0 && r.Leader == p.leader && r.Term == p.term && g.rules.covers(r.Epoch, p.epoch)
}

// ToPersist returns the length that must be on stable storage before promises of that length are made, and
// whether it is not there yet. It is needed at the next start, in [Past].
func (g *Grantor) ToPersist() (longest time.Duration, needed bool) {
	return max(g.wanted, g.recorded), g.wanted > g.recorded
}

// Persisted says that a length returned by ToPersist is on stable storage.
func (g *Grantor) Persisted(longest time.Duration) { g.recorded = max(g.recorded, longest) }
