package masterlease

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// law is what exclusivity rests on, one question each. There is one answer to each; the tests give others, one
// at a time, to show that the small world notices.
type law struct {
	// promises: for how long does a grantor keep a promise of some length? (F2)
	promises func(d clock.Drift, length time.Duration) time.Duration
	// counts: for how long does a holder count on one? (L2)
	counts func(d clock.Drift, length time.Duration) time.Duration
	// bound: does a promise that lasts until then still bind? (T1: who waits looks at both clocks)
	bound func(now, until clock.Instant) bool
	// over: may an end not be relied on any more? (T1: who relies looks at both clocks)
	over func(now, end clock.Instant) bool
	// newer: does a request with this stamp extend a promise that echoes the last one? (F3)
	newer func(stamp, last clock.Instant) bool
	// from: which instant does a grant count from: the stamp it echoes, or its arrival? (L2)
	from func(echo, arrival clock.Instant) clock.Instant
	// asker: is the message from the leader that this member follows, in the member's term? (F1)
	asker func(m Heard, s State) bool
	// covers: does the release of some epoch end a promise to another? (F5)
	covers func(released, promised uint64) bool
	// current: does a grant of some epoch count in the holder's epoch? (L2)
	current func(granted, own uint64) bool
	// next: which epoch follows after an aborted transfer? (L7)
	next func(epoch uint64) uint64
	// waits: must a promise of this length wait for a record, if that one is on record? (C8)
	waits func(length, recorded time.Duration) bool
	// holdOff: how long does a member hold off votes that starts with this on record? (C8)
	holdOff func(recorded time.Duration) time.Duration
	// electorates: which sets of voters must each have a quorum? (L3)
	electorates func(c Configuration) [2][]uint64
	// quorum: how many of so many voters are a quorum? (L3)
	quorum func(voters int) int
	// retracts: is the authority withdrawn while a transfer is on its way? (L7)
	retracts func(transferring bool) bool
	// settled: is the authority usable, given whether an entry of the own term was applied? (L6)
	settled func(applied bool) bool
}

var careful = law{
	promises:    func(d clock.Drift, length time.Duration) time.Duration { return d.GrantPromise(length) },
	counts:      func(d clock.Drift, length time.Duration) time.Duration { return d.CountPromise(length) },
	bound:       func(now, until clock.Instant) bool { return !now.After(until) },
	over:        func(now, end clock.Instant) bool { return !now.Before(end) },
	newer:       newer,
	from:        func(echo, _ clock.Instant) clock.Instant { return echo },
	asker:       isAsker,
	covers:      func(released, promised uint64) bool { return released >= promised },
	current:     func(granted, own uint64) bool { return granted == own },
	next:        func(epoch uint64) uint64 { return epoch + 1 },
	waits:       func(length, recorded time.Duration) bool { return length > recorded },
	holdOff:     func(recorded time.Duration) time.Duration { return recorded },
	electorates: func(c Configuration) [2][]uint64 { return [2][]uint64{c.Voters, c.Outgoing} },
	quorum:      func(voters int) int { return voters/2 + 1 },
	retracts:    func(transferring bool) bool { return transferring },
	settled:     func(applied bool) bool { return applied },
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

func isAsker(m Heard, s State) bool {
	return s.Role == Follower && s.Leader == m.From && s.Term == m.Term && m.Request.Term == m.Term
}
