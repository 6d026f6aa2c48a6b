package masterlease

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// DefaultMaxDuration is the default of [GrantorConfig.MaxDuration].
	DefaultMaxDuration = 10 * time.Second
	// DefaultMaxParked is the default of [GrantorConfig.MaxParked].
	DefaultMaxParked = 64
)

// GrantorConfig configures a [Grantor]. A zero field means its default.
type GrantorConfig struct {
	// Drift is the bound on clock rates. The grantor uses the leader's bound if that is larger.
	Drift clock.Drift
	// MaxDuration bounds the length of a promise. The grantor grants a longer request for this long.
	MaxDuration time.Duration
	// MaxParked bounds how many candidates can have a ballot parked.
	MaxParked int
	// Domain identifies the clock domain, so that the leader can distinguish a drifting clock from another
	// clock. Any number that differs between boots will do.
	Domain uint64
}

func (c GrantorConfig) validate() error {
	var errs []error
	if err := c.Drift.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("masterlease: %w", err))
	}
	if c.MaxDuration < 0 || c.MaxDuration > maxDuration {
		errs = append(errs, fmt.Errorf("masterlease: MaxDuration of %v is out of range: use up to %v", c.MaxDuration, maxDuration))
	}
	if c.MaxParked < 0 {
		errs = append(errs, fmt.Errorf("masterlease: MaxParked is %d: use 0 for the default, or a positive number", c.MaxParked))
	}
	return errors.Join(errs...)
}

func (c GrantorConfig) withDefaults() GrantorConfig {
	c.Drift = cmp.Or(c.Drift, clock.DefaultDrift)
	c.MaxDuration = cmp.Or(c.MaxDuration, DefaultMaxDuration)
	c.MaxParked = cmp.Or(c.MaxParked, DefaultMaxParked)
	return c
}

// Past is what a starting member knows of its earlier runs.
type Past struct {
	// Bootstrap: the member helps found a cluster by explicit order, so it cannot have promised anything. An
	// empty data directory does not prove that.
	Bootstrap bool
	// Longest is the length that was last persisted for [Grantor.ToPersist]; 0 if there is no record. A
	// member without a record assumes the longest promise that it could have made.
	Longest time.Duration
}

// promise is the newest promise of a member. It remains after its end, as the record of the newest stamp and
// epoch.
type promise struct {
	leader, term, epoch uint64        // the promise is to this leader
	stamp               clock.Instant // the newest stamp, on the leader's clocks
	reading             clock.Instant // when this member processed that stamp, on its own clocks
	duration            time.Duration
	drift               clock.Drift
	until               clock.Instant
	binds               bool // made, and not released
	released            bool // the leader released this epoch
}

// Grantor holds what a member has promised to leaders, and is the gate in front of its votes. Every member
// has one, also learners and leaders. It is not safe for concurrent use.
type Grantor struct {
	config   GrantorConfig
	rules    rules
	promise  promise
	holdOff  clock.Instant // end of the vote hold-off after the start
	holdsOff bool
	recorded time.Duration // the longest promise on stable storage
	wanted   time.Duration // the longest promise that a leader requested
	parked   []Ballot
	stats    GrantorStats
}

// NewGrantor returns the grantor of a member that starts now.
func NewGrantor(c GrantorConfig, past Past, now clock.Instant) (*Grantor, error) {
	return grantorWithRules(c, past, now, defaultRules)
}

// grantorWithRules is NewGrantor with rules that a test may have changed.
func grantorWithRules(c GrantorConfig, past Past, now clock.Instant, r rules) (*Grantor, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if past.Longest < 0 {
		return nil, fmt.Errorf("masterlease: the longest promise on record is %v: the record is damaged: remove it, and the member will wait for the longest possible promise", past.Longest)
	}
	g := &Grantor{config: c.withDefaults(), rules: r, recorded: past.Longest}
	if past.Bootstrap {
		return g, nil
	}
	// No leader can have been promised more than MaxDuration, at the largest drift bound.
	longest := cmp.Or(past.Longest, clock.MaxDrift.GrantPromise(g.config.MaxDuration))
	g.holdOff, g.holdsOff = now.Add(r.holdOff(longest)), true
	return g, nil
}

// Heard is an append, a heartbeat or a snapshot that raft has processed, with the request that came with it.
type Heard struct {
	From    uint64
	Term    uint64 // of the raft message
	Request Request
}

// Outcome is the result of a request.
type Outcome uint8

const (
	// Refused: the message is not from the leader that this member follows in this term, or the request is
	// malformed.
	Refused Outcome = iota
	// Stale: the member has processed this request or a newer one, or the epoch of the request is over.
	Stale
	// Unpersisted: the promise would be longer than the recorded one. Persist [Grantor.ToPersist] and call
	// Persisted; then the next request is granted.
	Unpersisted
	// Promised: the member made or extended the promise.
	Promised
)

func (o Outcome) String() string {
	return [...]string{"refused", "stale", "unpersisted", "promised"}[o]
}

// Hear processes a request, after raft has processed the message that it came with. s is the state of raft
// after that message. Call Hear before any answer to the message leaves (F1 to F3).
func (g *Grantor) Hear(m Heard, s State, now clock.Instant) Outcome {
	outcome := g.decide(m, s, now)
	g.stats.Heard[outcome]++
	return outcome
}

// decide makes or extends a promise if the request allows it.
func (g *Grantor) decide(m Heard, s State, now clock.Instant) Outcome {
	r, p := m.Request, &g.promise
	if !g.rules.fromOwnLeader(m, s) || m.From == 0 || r.validate() != nil {
		return Refused
	}
	same := p.term == r.Term && p.leader == m.From
	switch {
	case p.term > r.Term, p.term == r.Term && p.leader != m.From:
		return Refused // raft has one leader for each term, and terms do not decrease
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
		until = later(until, p.until) // also keep what was promised to an earlier leader
	}
	*p = promise{
		leader: m.From, term: r.Term, epoch: r.Epoch, stamp: r.Stamp, reading: now,
		duration: duration, drift: drift, until: until, binds: true,
	}
	g.dropObsolete()
	return Promised
}

// Grant returns the grant for an answer to the given member in the given term, and false if there is none.
// Call it when the answer leaves (F4). Grant reports an existing promise, and makes none.
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

// Release processes a release that came alone, and reports whether it ended a promise (F5). It never shortens
// the hold-off after a start.
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

// coveredBy reports whether r releases the newest promise of this member.
func (g *Grantor) coveredBy(r *Release) bool {
	p := &g.promise
	return r != nil && p.term != 0 && r.Leader == p.leader && r.Term == p.term && g.rules.covers(r.Epoch, p.epoch)
}

// ToPersist returns the length that must be on stable storage before the grantor makes a promise of that
// length. needed is false if that length is already there. The next start needs the length in [Past].
func (g *Grantor) ToPersist() (longest time.Duration, needed bool) {
	return max(g.wanted, g.recorded), g.wanted > g.recorded
}

// Persisted records that a length returned by ToPersist is on stable storage.
func (g *Grantor) Persisted(longest time.Duration) { g.recorded = max(g.recorded, longest) }
