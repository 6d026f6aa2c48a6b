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
	// DefaultDuration is for how long a leader asks: a little less than the usual election timeout of a
	// second, so that leases cost nothing when a leader fails.
	DefaultDuration = 900 * time.Millisecond
	// DefaultRateWindow is over how long a peer's clock rate is measured.
	DefaultRateWindow = time.Minute
	// maxDuration is more than anybody wants; it keeps the arithmetic far from its limits.
	maxDuration = time.Hour
	// granularity is taken off what a grant is worth, for clocks that advance in steps.
	granularity = time.Millisecond
)

// HolderConfig is how a leader holds its lease. The zero value of a field means its default.
type HolderConfig struct {
	ID uint64 // of this member; not 0
	// Drift is the bound on clock rates; a grantor's is taken if it is larger.
	Drift clock.Drift
	// Duration is for how long promises are asked. With more than the election timeout a failover takes
	// longer by the difference.
	Duration time.Duration
	// StallTimeout is how long the local disk, or the commit of what is in the log, may stand still before
	// the lease is let go. After twice that the leader is Silent. The default is Duration.
	StallTimeout time.Duration
	// LagLimit is by how much the local disk may be slower than those of the others, before the leader is Silent. It
	// should be longer than disks ever stand still in good order. The default is twice StallTimeout.
	LagLimit time.Duration
	// RateWindow is over how long a peer's clock rate is measured. A minute tells 20 ppm on a local network.
	RateWindow time.Duration
}

func (c HolderConfig) validate() error {
	var errs []error
	if c.ID == 0 {
		errs = append(errs, errors.New("masterlease: a holder needs the member's id, which is not 0"))
	}
	if err := c.Drift.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("masterlease: %w", err))
	}
	if c.Duration < 0 || c.Duration > maxDuration {
		errs = append(errs, fmt.Errorf("masterlease: a duration of %v is out of range: use up to %v", c.Duration, maxDuration))
	}
	if c.StallTimeout < 0 || c.LagLimit < 0 || c.RateWindow < 0 {
		errs = append(errs, errors.New("masterlease: StallTimeout, LagLimit and RateWindow must not be negative"))
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

// entry is what the leader knows of one other member.
type peer struct {
	epoch   uint64        // of the newest grant; 0: none in this term
	echo    clock.Instant // the newest stamp that was echoed in that epoch
	end     clock.Instant
	rate    rateMeter
	suspect bool // its clock was outside the bound
}

// Holder is a leader's lease. Every member has one; it is idle unless the member leads. It is not safe for
// concurrent use: publish the [Authority] for readers on other goroutines.
type Holder struct {
	config HolderConfig
	rules  rules

	leading   bool
	term      uint64
	epoch     uint64
	applied   bool // an entry of the own term
	lastStamp clock.Instant
	asked     bool // last is the newest stamp of this term

	transferring bool
	stopped      bool
	fault        Fault
	stall        stall

	members        Configuration
	peers          map[uint64]*peer // looked up by id only
	pending        bool             // a change of the configuration is in the log
	leaving        bool             // this member is no voter after it
	authority      Authority
	accountedUntil clock.Instant // up to here the time without authority is accounted for
	ends           []clock.Instant
	stats          HolderStats
}

// NewHolder returns the holder of a member that does not lead.
func NewHolder(c HolderConfig) (*Holder, error) { return holderWithRules(c, defaultRules) }

func holderWithRules(c HolderConfig, l rules) (*Holder, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Holder{config: c.withDefaults(), rules: l, peers: make(map[uint64]*peer)}, nil
}

// Observe takes in what raft says of this member. Call it after every call of raft that can change that, before
// any message which that call produced is handed to the transport (L1, L5). If the member gave up its authority by
// this, because it leads no more or hands over, Observe returns the release that may now be sent.
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

// lead begins a leadership: nothing of an earlier one counts.
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

// nextEpoch leaves everything granted so far behind, and asks again.
func (h *Holder) nextEpoch(now clock.Instant) {
	h.epoch = h.rules.nextEpoch(h.epoch)
	h.stats.Epochs++
	h.update(now)
}

func (h *Holder) issueRelease() (Release, bool) {
	if h.stopped {
		return Release{}, false // it was returned by Stop
	}
	h.stats.Releases++
	return Release{Leader: h.config.ID, Term: h.term, Epoch: h.epoch}, true
}

// Released returns what to put beside the order to campaign that a transfer sends, if it has not been aborted.
func (h *Holder) Released() (Release, bool) {
	if !h.leading || !h.transferring || h.stopped {
		return Release{}, false
	}
	return Release{Leader: h.config.ID, Term: h.term, Epoch: h.epoch}, true
}

// Renounce gives up what was granted so far and asks again, in a new epoch: for those who learn that their clocks
// may have been interrupted, or that no message can have been sent.
func (h *Holder) Renounce(now clock.Instant) {
	if h.leading {
		h.nextEpoch(now)
	}
}

// Stop gives up the authority for the rest of this process's life: for shutdown, and when the own storage has
// failed. The release may be sent to everybody, once nothing that rests on the authority will be answered.
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

// Configure says which configuration is applied. Call it in the same step in which raft is told (L4). It settles
// what was pending.
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

// Pending says that a change to the configuration is in the log and not applied. Until it is, there is no
// authority; and if this member is no voter then, it does not ask either.
func (h *Holder) Pending(next Configuration, now clock.Instant) {
	h.pending = true
	h.leaving = !slices.Contains(next.Voters, h.config.ID)
	h.update(now)
}

func distinct(ids []uint64) []uint64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// Applied says that a committed entry of the given term was applied (L6).
func (h *Holder) Applied(term uint64, now clock.Instant) {
	if h.leading && term == h.term && !h.applied {
		h.applied = true
		h.update(now)
	}
}

// Request returns what to put beside an append, heartbeat or snapshot to other members that is about to be handed
// to the transport, if anything. now must have been read before that; the same request may go to several members.
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

func (h *Holder) isVoter() bool {
	return slices.Contains(h.members.Voters, h.config.ID) || slices.Contains(h.members.Outgoing, h.config.ID)
}

// Receive takes a grant that came beside an answer (L2).
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
		h.stats.Unknown++ // no stamp of ours
	case p.epoch == h.epoch && !newer(g.Echo, p.echo):
		h.stats.Stale++
	default:
		h.accept(p, g, now)
	}
}

func (h *Holder) accept(p *peer, g Grant, now clock.Instant) {
	worth := h.rules.countedLength(max(g.Drift, h.config.Drift), min(g.Duration, h.config.Duration)) - granularity
	p.epoch, p.echo, p.end = h.epoch, g.Echo, h.rules.countedFrom(g.Echo, now).Add(worth)
	h.stats.Accepted++
	if g.Remaining < now.Remaining(p.end) {
		// The promise ends before it may be counted on no more: one of the clocks is beyond the bound.
		h.stats.EarlyPromises++
		h.distrust(EarlyPromise)
	}
	h.judgeRate(p, g, now)
	h.update(now)
}

// HearLeader takes the term of an append, heartbeat or snapshot before raft sees it. A leader of a later term cannot
// exist while this member has valid authority, so if there is one a clock broke its bound: HearLeader reports it,
// and this member holds no lease any more until [Holder.Trust].
func (h *Holder) HearLeader(term uint64, now clock.Instant) bool {
	if term <= h.term || !h.Valid(now) {
		return false
	}
	h.stats.LaterLeaders++
	h.distrust(LaterLeader)
	h.update(now)
	return true
}

// forever is the end of what the leader promises itself.
var forever = clock.Instant{Raw: math.MaxInt64, Boot: math.MaxInt64}
