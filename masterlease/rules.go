package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// law is what exclusivity rests on, one question each. There is one answer to each; the tests give others, one
// at a time, to show that the small world notices.
type rules struct {
	// promiseLength: for how long does a grantor keep a promise of some length? (F2)
	promiseLength func(d clock.Drift, length time.Duration) time.Duration
	// countedLength: for how long does a holder count on one? (L2)
	countedLength func(d clock.Drift, length time.Duration) time.Duration
	// stillBinds: does a promise that lasts until then still bind? (T1: who waits looks at both clocks)
	stillBinds func(now, until clock.Instant) bool
	// isOver: may an end not be relied on any more? (T1: who relies looks at both clocks)
	isOver func(now, end clock.Instant) bool
	// newer: does a request with this stamp extend a promise that echoes the last one? (F3)
	newer func(stamp, last clock.Instant) bool
	// countedFrom: which instant does a grant count from: the stamp it echoes, or its arrival? (L2)
	countedFrom func(echo, arrival clock.Instant) clock.Instant
	// fromOwnLeader: is the message from the leader that this member follows, in the member's term? (F1)
	fromOwnLeader func(m Heard, s State) bool
	// covers: does the release of some epoch end a promise to another? (F5)
	covers func(released, promised uint64) bool
	// sameEpoch: does a grant of some epoch count in the holder's epoch? (L2)
	sameEpoch func(granted, own uint64) bool
	// nextEpoch: which epoch follows after an aborted transfer? (L7)
	nextEpoch func(epoch uint64) uint64
	// needsRecord: must a promise of this length wait for a record, if that one is on record? (C8)
	needsRecord func(length, recorded time.Duration) bool
	// holdOff: how long does a member hold off votes that starts with this on record? (C8)
	holdOff func(recorded time.Duration) time.Duration
	// voterSets: which sets of voters must each have a quorum? (L3)
	voterSets func(c Configuration) [2][]uint64
	// quorum: how many of so many voters are a quorum? (L3)
	quorum func(voters int) int
	// withdraws: is the authority withdrawn while a transfer is on its way? (L7)
	withdraws func(transferring bool) bool
	// usable: is the authority usable, given whether an entry of the own term was applied? (L6)
	usable func(applied bool) bool
}

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

// newer says whether a is a later moment than b of the same clocks, which never run backwards: one of them may
// have stood still.
func newer(a, b clock.Instant) bool { return a != b && !earlier(a, b) }

// earlier says whether a lies before b on either clock.
func earlier(a, b clock.Instant) bool { return a.Raw < b.Raw || a.Boot < b.Boot }

// later returns the later reading of each of the two clocks.
func later(a, b clock.Instant) clock.Instant {
	return clock.Instant{Raw: max(a.Raw, b.Raw), Boot: max(a.Boot, b.Boot)}
}

func isFromOwnLeader(m Heard, s State) bool {
	return s.Role == Follower && s.Leader == m.From && s.Term == m.Term && m.Request.Term == m.Term
}
