package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// GrantorStats is what a grantor has counted since it started, and its present state.
type GrantorStats struct {
	Heard    [4]uint64 // requests by [Outcome]
	Sent     uint64    // grants returned for sending
	Released uint64    // promises ended by a release
	Parked   uint64    // ballots parked
	Unparked uint64    // parked ballots that raft saw later
	Dropped  uint64    // parked ballots, votes and orders to campaign that raft never saw
	Usurped  uint64    // elections in spite of a promise: a bug of the caller

	Promise     time.Duration // how long the promise still binds; 0 if none does
	HoldOffLeft time.Duration // how long the hold-off after the start still lasts
	InParked    int           // candidates with a parked ballot
}

// Stats returns the counters and the present state.
func (g *Grantor) Stats(now clock.Instant) GrantorStats {
	s := g.stats
	if g.isBound(now) {
		s.Promise = max(0, now.Until(g.promise.until))
	}
	if g.InHoldOff(now) {
		s.HoldOffLeft = max(0, now.Until(g.holdOff))
	}
	s.InParked = len(g.parked)
	return s
}

// HolderStats is what a holder has counted since it started, and its present state.
type HolderStats struct {
	Checks, Misses  uint64        // calls of Check, and those that reported false
	Rounds, Readers uint64        // ReadIndex rounds after misses, and the readers that they confirmed
	Requests        uint64        // requests returned for sending
	Accepted        uint64        // grants that counted
	Stale           uint64        // grants ignored because a newer stamp was echoed before
	OtherEpoch      uint64        // grants ignored because of another epoch
	OtherTerm       uint64        // grants ignored because of another term, or while not leading
	Unknown         uint64        // grants ignored because the member or the stamp is unknown
	Releases        uint64        // releases returned for sending
	Epochs          uint64        // epochs after the first of a term
	Stalls          uint64        // times that the log began to hang
	LaterLeaders    uint64        // later leaders seen during valid authority: a broken clock
	EarlyPromises   uint64        // promises that end before the authority that rests on them: a broken clock
	OwnRates        uint64        // times that a majority of clocks were outside the bound
	Without         time.Duration // time as leader without authority

	Remaining time.Duration // of the authority; 0 without authority
	Fault     Fault         // why the holder distrusts the clocks; NoFault if it trusts them
}

// Stats returns the counters and the present state.
func (h *Holder) Stats(now clock.Instant) HolderStats {
	s := h.stats
	if h.Valid(now) {
		s.Remaining = now.Remaining(h.authority.End)
	}
	if h.leading {
		since := h.accountedUntil
		if h.authority.Term != 0 {
			since = later(since, h.authority.End)
		}
		s.Without += now.Elapsed(since)
	}
	s.Fault = h.fault
	return s
}
