package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// GrantorStats is what a grantor has counted since the start, and how it stands.
type GrantorStats struct {
	Heard    [4]uint64 // requests by [Outcome]
	Sent     uint64    // grants handed out to be sent
	Released uint64    // promises ended by a release
	Parked   uint64    // ballots
	Unparked uint64    // … handed on later
	Dropped  uint64    // … and votes and orders to campaign that were not
	Usurped  uint64    // elections without asking: a bug of the caller

	Promise     time.Duration // how long the promise still binds
	HoldOffLeft time.Duration // how long the wait after the start still lasts
	InParked    int           // how many candidates have a ballot parked
}

// Stats returns the counters.
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

// HolderStats is what a holder has counted since the start, and how it stands.
type HolderStats struct {
	Checks, Misses  uint64
	Rounds, Readers uint64 // of refreshing after misses
	Requests        uint64
	Accepted        uint64 // grants
	Stale           uint64 // grants ignored: a newer stamp was there
	OtherEpoch      uint64 // … of another epoch
	OtherTerm       uint64 // … of another term, or while not leading
	Unknown         uint64 // … of an unknown member, or with a stamp that was not sent
	Releases        uint64
	Epochs          uint64 // begun within a term
	Stalls          uint64
	LaterLeaders    uint64        // seen while the own authority was valid: a broken clock
	EarlyPromises   uint64        // that end before what rests on them: a broken clock
	OwnRates        uint64        // a majority of clocks out of bounds
	Without         time.Duration // led without authority

	Remaining time.Duration // of the authority
	Fault     Fault
}

// Stats returns the counters.
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
