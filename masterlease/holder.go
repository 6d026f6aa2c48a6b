package masterlease

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

const (
	// DefaultDuration is how long a promise lasts. It is a little less than the usual election timeout of a
	// second, so that promises do not delay the election after a leader fails.
	DefaultDuration = 900 * time.Millisecond
	// DefaultRateWindow is the length of one measurement of a peer's clock rate.
	DefaultRateWindow = time.Minute
	// maxDuration is longer than any useful promise. It keeps the arithmetic far from its limits.
	maxDuration = time.Hour
	// granularity is subtracted from the counted length of a grant, for clocks that advance in steps.
	granularity = time.Millisecond
)

// HolderConfig configures a [Holder]. A zero field means its default.
type HolderConfig struct {
	ID uint64 // of this member; not 0
	// Drift is the bound on clock rates. The holder uses a grantor's bound if that is larger.
	Drift clock.Drift
	// Duration is the length of the promises that the leader requests. If it is longer than the election
	// timeout, a failover takes longer by the difference.
	Duration time.Duration
	// StallTimeout is how long the local disk, or the commit index, may hang before the leader gives up its
	// authority. After twice that time the leader is Silent. The default is Duration.
	StallTimeout time.Duration
	// LagLimit is by how much the local disk may lag behind the disks of the others before the leader is
	// Silent. It should be longer than the pauses of a healthy disk. The default is twice StallTimeout.
	LagLimit time.Duration
	// RateWindow is the length of one measurement of a peer's clock rate. A minute resolves 20 ppm on a local
	// network.
	RateWindow time.Duration
}

func (c HolderConfig) validate() error {
	var errs []error
	if c.ID == 0 {
		errs = append(errs, errors.New("masterlease: ID is 0: set it to the member's id"))
	}
	if err := c.Drift.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("masterlease: %w", err))
	}
	if c.Duration < 0 || c.Duration > maxDuration {
		errs = append(errs, fmt.Errorf("masterlease: Duration of %v is out of range: use up to %v", c.Duration, maxDuration))
	}
	if c.StallTimeout < 0 || c.LagLimit < 0 || c.RateWindow < 0 {
		errs = append(errs, errors.New("masterlease: StallTimeout, LagLimit or RateWindow is negative: use 0 for the default, or a positive duration"))
	}
	return errors.Join(errs...)
}

func (c HolderConfig) withDefaults() HolderConfig {
	c.Drift = cmp.Or(c.Drift, clock.DefaultDrift)
	c.Duration = cmp.Or(c.Duration, DefaultDuration)
	c.StallTimeout = cmp.Or(c.StallTimeout, c.Duration)
	c.LagLimit = cmp.Or(c.LagLimit, 2*c.StallTimeout)
	c.RateWindow = cmp.Or(c.RateWindow, DefaultRateWindow)
	return c
}

// peer is what the leader knows of one other member.
type peer struct {
	epoch   uint64        // of the newest grant; 0 without a grant in this term
	echo    clock.Instant // the newest stamp that was echoed in that epoch
	end     clock.Instant // the leader counts on the promise until then, on its own clocks
	rate    rateMeter
	suspect bool // both of its clocks were outside the bound in the last window
}

// Holder is a leader's lease. Every member has one; it does nothing unless the member leads. It is not safe
// for concurrent use: publish the [Authority] for readers on other goroutines.
type Holder struct {
	config HolderConfig
	rules  rules

	leading   bool
	term      uint64
	epoch     uint64
	applied   bool // an entry of this term was applied
	lastStamp clock.Instant
	asked     bool // this leadership has sent a request

	transferring bool
	stopped      bool
	fault        Fault
	stall        stall

	members        Configuration
	peers          map[uint64]*peer // by id, without this member
	pending        bool             // the log holds a change of the configuration that is not applied
	leaving        bool             // this member is not a voter after that change
	authority      Authority
	accountedUntil clock.Instant   // statistics include the time without authority up to here
	ends           []clock.Instant // reused by endOf
	stats          HolderStats
}

// NewHolder returns the holder of a member that does not lead.
func NewHolder(c HolderConfig) (*Holder, error) { return holderWithRules(c, defaultRules) }

// holderWithRules is NewHolder with rules that a test may have changed.
func holderWithRules(c HolderConfig, r rules) (*Holder, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Holder{config: c.withDefaults(), rules: r, peers: make(map[uint64]*peer)}, nil
}

// Observe processes the state of raft. Call it after every call of raft that can change that state, and
// before any message that the call produced goes to the transport (L1, L5). If the member gave up its
// authority because it no longer leads or hands over, Observe returns the release. The caller may send it
// then.
func (h *Holder) Observe(s State, now clock.Instant) (Release, bool) {
	leads := s.Role == Leader
	still := h.leading && leads && s.Term == h.term
	switch {
	case still && s.Transferee != 0 && !h.transferring:
		h.transferring = true
		h.update(now)
		return h.issueRelease()
	case still && s.Transferee == 0 && h.transferring:
		h.transferring = false
		h.nextEpoch(now)
		return Release{}, false
	case still:
		return Release{}, false
	}
	var released Release
	var gaveUp bool
	if h.leading {
		released, gaveUp = h.issueRelease()
		h.update(now)
		h.leading = false
		h.update(now)
	}
	if leads {
		h.lead(s, now)
	}
	return released, gaveUp
}

// lead starts a leadership. No grant of an earlier leadership counts.
func (h *Holder) lead(s State, now clock.Instant) {
	h.leading, h.term, h.epoch, h.applied, h.asked = true, s.Term, 1, false, false
	h.transferring, h.authority, h.stall = s.Transferee != 0, Authority{}, stall{}
	h.accountedUntil = now
	if !h.fault.outlastsTerm() {
		h.fault = NoFault
	}
	for _, p := range h.peers { // order: each is treated alike
		*p = peer{}
	}
}

// nextEpoch starts a new epoch, in which no earlier grant counts.
func (h *Holder) nextEpoch(now clock.Instant) {
	h.epoch = h.rules.nextEpoch(h.epoch)
	h.stats.Epochs++
	h.update(now)
}

// issueRelease returns the release of the current epoch and counts it. It reports false after Stop, which has
// already returned the release.
func (h *Holder) issueRelease() (Release, bool) {
	if h.stopped {
		return Release{}, false // Stop has returned the release
	}
	h.stats.Releases++
	return Release{Leader: h.config.ID, Term: h.term, Epoch: h.epoch}, true
}

// Released returns the release that travels with the order to campaign of a transfer. It reports false if no
// transfer is on its way.
func (h *Holder) Released() (Release, bool) {
	if !h.leading || !h.transferring || h.stopped {
		return Release{}, false
	}
	return Release{Leader: h.config.ID, Term: h.term, Epoch: h.epoch}, true
}

// Renounce gives up all grants and starts a new epoch. Call it when this machine's clocks may have been
// interrupted, or when no message can have been sent.
func (h *Holder) Renounce(now clock.Instant) {
	if h.leading {
		h.nextEpoch(now)
	}
}

// Stop gives up the authority for the rest of this process: at shutdown, and when local storage has failed.
// Send the release to all members once no answer that rests on the authority can leave.
func (h *Holder) Stop(now clock.Instant) (Release, bool) {
	var r Release
	var gaveUp bool
	if h.leading {
		r, gaveUp = h.issueRelease()
	}
	h.stopped = true
	h.update(now)
	return r, gaveUp
}

// Configure records the applied configuration. Call it in the same step in which raft applies it (L4). It
// ends what Pending began.
func (h *Holder) Configure(c Configuration, now clock.Instant) {
	h.update(now)
	h.members = Configuration{Voters: distinct(c.Voters), Outgoing: distinct(c.Outgoing), Learners: distinct(c.Learners)}
	kept := make(map[uint64]*peer)
	for _, set := range [][]uint64{h.members.Voters, h.members.Outgoing, h.members.Learners} {
		for _, id := range set {
			if kept[id] == nil && id != h.config.ID {
				kept[id] = cmp.Or(h.peers[id], new(peer))
			}
		}
	}
	h.peers, h.pending, h.leaving = kept, false, false
	h.update(now)
}

// Pending records that the log holds a change of the configuration that is not applied. Until it is applied
// there is no authority. If this member is not a voter in next, it sends no requests either.
func (h *Holder) Pending(next Configuration, now clock.Instant) {
	h.pending = true
	h.leaving = !slices.Contains(next.Voters, h.config.ID)
	h.update(now)
}

// distinct returns the ids sorted and without duplicates.
func distinct(ids []uint64) []uint64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// Applied records that a committed entry of the given term was applied (L6).
func (h *Holder) Applied(term uint64, now clock.Instant) {
	if h.leading && term == h.term && !h.applied {
		h.applied = true
		h.update(now)
	}
}

// Request returns the request for an append, a heartbeat or a snapshot that is about to go to the transport,
// and false if there is none. The caller read now before that. The same request may go to several members.
func (h *Holder) Request(now clock.Instant) (Request, bool) {
	if !h.leading || h.stopped || h.rules.withdraws(h.transferring) || h.fault != NoFault || h.stall.isStalled(h.config.StallTimeout, now) ||
		h.leaving || !h.isVoter() {
		return Request{}, false
	}
	if !h.asked {
		h.lastStamp = now
	}
	h.lastStamp, h.asked = later(h.lastStamp, now), true
	h.stats.Requests++
	return Request{Term: h.term, Epoch: h.epoch, Stamp: now, Duration: h.config.Duration, Drift: h.config.Drift}, true
}

// isVoter reports whether this member is a voter of the applied configuration.
func (h *Holder) isVoter() bool {
	return slices.Contains(h.members.Voters, h.config.ID) || slices.Contains(h.members.Outgoing, h.config.ID)
}

// Receive processes a grant that came with an answer (L2).
func (h *Holder) Receive(from uint64, g Grant, now clock.Instant) {
	h.update(now)
	p := h.peers[from]
	switch {
	case !h.leading || g.Term != h.term:
		h.stats.OtherTerm++
	case !h.rules.sameEpoch(g.Epoch, h.epoch):
		h.stats.OtherEpoch++
	case p == nil || g.validate() != nil:
		h.stats.Unknown++
	case !h.asked || earlier(now, g.Echo) || earlier(h.lastStamp, g.Echo):
		h.stats.Unknown++ // this leadership sent no such stamp
	case p.epoch == h.epoch && !newer(g.Echo, p.echo):
		h.stats.Stale++
	default:
		h.accept(p, g, now)
	}
}

// accept records a valid grant.
func (h *Holder) accept(p *peer, g Grant, now clock.Instant) {
	worth := h.rules.countedLength(max(g.Drift, h.config.Drift), min(g.Duration, h.config.Duration)) - granularity
	p.epoch, p.echo, p.end = h.epoch, g.Echo, h.rules.countedFrom(g.Echo, now).Add(worth)
	h.stats.Accepted++
	if g.Remaining < now.Remaining(p.end) {
		// The promise ends before the authority that rests on it, so a clock is outside its bound.
		h.stats.EarlyPromises++
		h.distrust(EarlyPromise)
	}
	h.judgeRate(p, g, now)
	h.update(now)
}

// HearLeader processes the term of an append, a heartbeat or a snapshot, before raft sees the message. While
// this member has valid authority, no leader of a later term can exist. So if there is one, a clock broke its
// bound. Then HearLeader reports true, and this member has no authority until [Holder.Trust].
func (h *Holder) HearLeader(term uint64, now clock.Instant) bool {
	if term <= h.term || !h.Valid(now) {
		return false
	}
	h.stats.LaterLeaders++
	h.distrust(LaterLeader)
	h.update(now)
	return true
}

// forever is the end of the leader's promise to itself.
var forever = clock.Instant{Raw: math.MaxInt64, Boot: math.MaxInt64}
