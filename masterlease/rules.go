package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// rules are the decisions on which exclusivity rests, one function each. Programs use defaultRules. Tests
// break one rule at a time, to show that they notice.
type rules struct {
	// promiseLength returns how long a grantor keeps a promise of the given length (F2).
	promiseLength func(d clock.Drift, length time.Duration) time.Duration
	// countedLength returns how long a holder counts on a promise of the given length (L2).
	countedLength func(d clock.Drift, length time.Duration) time.Duration
	// stillBinds reports whether a promise that lasts until the given instant still binds. The waiting side
	// looks at both clocks (T1).
	stillBinds func(now, until clock.Instant) bool
	// isOver reports whether the authority that lasts until end must no longer be used. The relying side
	// looks at both clocks (T1).
	isOver func(now, end clock.Instant) bool
	// newer reports whether a request with this stamp extends a promise that echoes the last stamp (F3).
	newer func(stamp, last clock.Instant) bool
	// countedFrom returns the instant from which a grant counts: the echoed stamp, not the arrival (L2).
	countedFrom func(echo, arrival clock.Instant) clock.Instant
	// fromOwnLeader reports whether a message comes from the leader that this member follows, in the term of
	// this member (F1).
	fromOwnLeader func(m Heard, s State) bool
	// covers reports whether the release of one epoch ends a promise to another (F5).
	covers func(released, promised uint64) bool
	// sameEpoch reports whether a grant of one epoch counts in the holder's own epoch (L2).
	sameEpoch func(granted, own uint64) bool
	// nextEpoch returns the epoch after an aborted transfer (L7).
	nextEpoch func(epoch uint64) uint64
	// needsRecord reports whether a promise of this length must wait until it is recorded, given the recorded
	// length (C8).
	needsRecord func(length, recorded time.Duration) bool
	// holdOff returns how long a starting member holds off votes, given the recorded length (C8).
	holdOff func(recorded time.Duration) time.Duration
	// voterSets returns the sets of voters that must each have a quorum (L3).
	voterSets func(c Configuration) [2][]uint64
	// quorum returns the size of a quorum of the given number of voters (L3).
	quorum func(voters int) int
	// withdraws reports whether the authority is withdrawn, given whether a transfer is on its way (L7).
	withdraws func(transferring bool) bool
	// usable reports whether the authority may be used, given whether an entry of this term was applied (L6).
	usable func(applied bool) bool
}

// defaultRules are the rules that programs use.
var defaultRules = rules{
	promiseLength: func(d clock.Drift, length time.Duration) time.Duration { return d.GrantPromise(length) },
	countedLength: func(d clock.Drift, length time.Duration) time.Duration { return d.CountPromise(length) },
	stillBinds:    func(now, until clock.Instant) bool { return !now.After(until) },
	isOver:        func(now, end clock.Instant) bool { return !now.Before(end) },
	newer:         newer,
	countedFrom:   func(echo, _ clock.Instant) clock.Instant { return echo },
	fromOwnLeader: isFromOwnLeader,
	covers:        func(released, promised uint64) bool { return released >= promised },
	sameEpoch:     func(granted, own uint64) bool { return granted == own },
	nextEpoch:     func(epoch uint64) uint64 { return epoch + 1 },
	needsRecord:   func(length, recorded time.Duration) bool { return length > recorded },
	holdOff:       func(recorded time.Duration) time.Duration { return recorded },
	voterSets:     func(c Configuration) [2][]uint64 { return [2][]uint64{c.Voters, c.Outgoing} },
	quorum:        func(voters int) int { return voters/2 + 1 },
	withdraws:     func(transferring bool) bool { return transferring },
	usable:        func(applied bool) bool { return applied },
}

// newer reports whether a is a later instant than b. Neither clock runs backwards, but one of the two may
// have stood still.
func newer(a, b clock.Instant) bool { return a != b && !earlier(a, b) }

// earlier reports whether a is before b on at least one clock.
func earlier(a, b clock.Instant) bool { return a.Raw < b.Raw || a.Boot < b.Boot }

// later returns the later reading of each of the two clocks.
func later(a, b clock.Instant) clock.Instant {
	return clock.Instant{Raw: max(a.Raw, b.Raw), Boot: max(a.Boot, b.Boot)}
}

// isFromOwnLeader reports whether m comes from the leader that this member follows. The terms of raft, the
// message and the request must be equal.
func isFromOwnLeader(m Heard, s State) bool {
	return s.Role == Follower && s.Leader == m.From && s.Term == m.Term && m.Request.Term == m.Term
}
