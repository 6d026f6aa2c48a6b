package masterlease

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A Ballot is another member's request for this member's vote or pre-vote.
type Ballot struct {
	Candidate uint64
	Term      uint64
	Pre       bool     // a pre-vote
	Release   *Release // the release that came with the request; nil without one
	// Message is returned with a parked ballot. The grantor does not read it.
	Message any
}

// Open reports whether this member may vote, campaign, and receive votes.
func (g *Grantor) Open(now clock.Instant) bool { return !g.InHoldOff(now) && !g.isBound(now) }

// InHoldOff reports whether the vote hold-off after the start still lasts. No release ends it. A rolling
// restart waits for its end before it continues with the next member.
func (g *Grantor) InHoldOff(now clock.Instant) bool {
	return g.holdsOff && g.rules.stillBinds(now, g.holdOff)
}

// isBound reports whether a promise binds this member.
func (g *Grantor) isBound(now clock.Instant) bool {
	return g.promise.binds && g.rules.stillBinds(now, g.promise.until)
}

// Opens returns the instant at which the gate opens, if nothing more is promised. The gate opens once both
// clocks are strictly past that instant. Opens reports false if the gate is open.
func (g *Grantor) Opens(now clock.Instant) (clock.Instant, bool) {
	holdOff, bound := g.InHoldOff(now), g.isBound(now)
	switch {
	case holdOff && bound:
		return later(g.holdOff, g.promise.until), true
	case holdOff:
		return g.holdOff, true
	case bound:
		return g.promise.until, true
	}
	return clock.Instant{}, false
}

// Vote reports whether raft may see a ballot now. If not, the grantor has parked the ballot, and the caller
// must send no answer. leads reports whether this member leads with valid authority; votes cannot depose such
// a leader.
func (g *Grantor) Vote(b Ballot, leads bool, now clock.Instant) bool {
	if !leads && g.admits(b.Release, now) {
		g.dropOlder(b)
		return true
	}
	g.park(b)
	return false
}

// admits reports whether the gate is open, or opens because of the release. No release ends the hold-off
// after a start, because the member does not know which promises the release would have to end.
func (g *Grantor) admits(r *Release, now clock.Instant) bool {
	if g.InHoldOff(now) {
		return false
	}
	if g.coveredBy(r) {
		g.Release(*r)
	}
	return !g.isBound(now)
}

// TimeoutNow reports whether raft may see a leader's order to campaign at once. If not, drop the order. If
// so, send the same release with the requests for votes that follow.
func (g *Grantor) TimeoutNow(r *Release, now clock.Instant) bool {
	if g.admits(r, now) {
		return true
	}
	g.stats.Dropped++
	return false
}

// VoteAnswer reports whether raft may see a vote or pre-vote that another member gave to this one. If not,
// drop it.
func (g *Grantor) VoteAnswer(now clock.Instant) bool {
	if g.Open(now) {
		return true
	}
	g.stats.Dropped++
	return false
}

// Campaign returns nil if this member may campaign now, otherwise a [*PromisedError].
func (g *Grantor) Campaign(now clock.Instant) error {
	if g.Open(now) {
		return nil
	}
	opens, _ := g.Opens(now)
	e := &PromisedError{Wait: now.Until(opens) + 1}
	if g.isBound(now) {
		e.Leader = g.promise.leader
	}
	return e
}

// Elected reports whether this member may have become leader now. If not, the caller campaigned without
// calling Campaign. Elected counts that, and the member must not serve.
func (g *Grantor) Elected(now clock.Instant) bool {
	if g.Open(now) {
		return true
	}
	g.stats.Usurped++
	return false
}

// park keeps the newest ballot of each candidate, of at most MaxParked candidates.
func (g *Grantor) park(b Ballot) {
	i := slices.IndexFunc(g.parked, func(p Ballot) bool { return p.Candidate == b.Candidate })
	switch {
	case i >= 0 && newerBallot(g.parked[i], b):
		g.stats.Dropped++
		return
	case i >= 0:
		g.parked = append(slices.Delete(g.parked, i, i+1), b)
		g.stats.Dropped++
	case len(g.parked) >= g.config.MaxParked:
		g.stats.Dropped++
		return
	default:
		g.parked = append(g.parked, b)
	}
	g.stats.Parked++
}

// newerBallot reports whether a is newer than b, both of one candidate: of a later term, or a vote where b is
// a pre-vote of the same term.
func newerBallot(a, b Ballot) bool {
	return a.Term > b.Term || a.Term == b.Term && b.Pre && !a.Pre
}

// dropOlder removes the parked ballot of a candidate that asks again, unless the parked one is newer.
func (g *Grantor) dropOlder(b Ballot) {
	g.parked = slices.DeleteFunc(g.parked, func(p Ballot) bool {
		older := p.Candidate == b.Candidate && !newerBallot(p, b)
		if older {
			g.stats.Dropped++
		}
		return older
	})
}

// dropObsolete removes the parked ballots that a newly extended promise makes useless. A term that has a
// leader needs no more votes. A candidate that only sent a pre-vote asks again if it still hears no leader.
// If the grantor let such an old ballot pass after this leader is gone, raft would take it for that of a
// candidate that takes over now.
//
// dropObsolete keeps votes of later terms: their candidates do not return to the leader's term.
func (g *Grantor) dropObsolete() {
	g.parked = slices.DeleteFunc(g.parked, func(b Ballot) bool {
		moot := b.Pre || b.Term <= g.promise.term
		if moot {
			g.stats.Dropped++
		}
		return moot
	})
}

// Unpark returns the ballots that raft may see now, in the order in which they came. Before the caller hands
// them to raft, it must make raft forget a leader that was silent for an election timeout. Raft counts that
// time in ticks, and may still refuse for its own reasons.
func (g *Grantor) Unpark(leads bool, now clock.Instant) []Ballot {
	if leads || len(g.parked) == 0 {
		return nil
	}
	var admitted []Ballot
	g.parked = slices.DeleteFunc(g.parked, func(b Ballot) bool {
		if !g.admits(b.Release, now) {
			return false
		}
		admitted = append(admitted, b)
		return true
	})
	g.stats.Unparked += uint64(len(admitted))
	return admitted
}
