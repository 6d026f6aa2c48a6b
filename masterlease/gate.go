package masterlease

import (
	"slices"

	"github.com/leasekeeper/leasekeeper/clock"
)

// A Ballot is another member's request for this member's vote or pre-vote.
type Ballot struct {
	Candidate uint64
	Term      uint64
	Pre       bool
	Release   *Release
	// Message is what the caller wants back when the ballot was parked. The grantor does not look at it.
	Message any
}

// Open reports whether this member may vote, campaign, and take in votes that were given to it.
func (g *Grantor) Open(now clock.Instant) bool { return !g.InHoldOff(now) && !g.isBound(now) }

// InHoldOff reports whether the member has started so short a while ago that it must not vote whatever is released:
// a rolling restart waits until it is over before it goes on to the next member.
func (g *Grantor) InHoldOff(now clock.Instant) bool {
	return g.holdsOff && g.rules.stillBinds(now, g.holdOff)
}

func (g *Grantor) isBound(now clock.Instant) bool {
	return g.promise.binds && g.rules.stillBinds(now, g.promise.until)
}

// Opens returns when the gate opens if nothing more is promised, and whether there is such a moment: if not, it is
// open. It opens when both clocks are strictly past that.
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

// Vote reports whether raft may see a ballot now. If not, it is parked, and no answer must leave: to raft the
// message is only late. leads says that this member leads with valid authority; such a leader is not voted down.
func (g *Grantor) Vote(b Ballot, leads bool, now clock.Instant) bool {
	if !leads && g.admits(b.Release, now) {
		g.dropOlder(b)
		return true
	}
	g.park(b)
	return false
}

// admits says whether the gate is open, or opens because of what was released. The wait after a start yields to
// no release: nobody knows what it would have to cover.
func (g *Grantor) admits(r *Release, now clock.Instant) bool {
	if g.InHoldOff(now) {
		return false
	}
	if g.coveredBy(r) {
		g.Release(*r)
	}
	return !g.isBound(now)
}

// TimeoutNow reports whether raft may see a leader's order to campaign at once. If not, drop it. If so, put the
// same release beside the requests for votes that follow.
func (g *Grantor) TimeoutNow(r *Release, now clock.Instant) bool {
	if g.admits(r, now) {
		return true
	}
	g.stats.Dropped++
	return false
}

// VoteAnswer reports whether raft may see a vote or pre-vote that was given to this member. If not, drop it.
func (g *Grantor) VoteAnswer(now clock.Instant) bool {
	if g.Open(now) {
		return true
	}
	g.stats.Dropped++
	return false
}

// Campaign returns nil if this member may campaign now, and else a [*PromisedError].
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

// Elected reports whether this member may have become leader now. If not, something campaigned without asking:
// that is counted, and the member must not serve.
func (g *Grantor) Elected(now clock.Instant) bool {
	if g.Open(now) {
		return true
	}
	g.stats.Usurped++
	return false
}

// park keeps the newest ballot of each candidate. Of one term a vote is newer than a pre-vote.
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

func newerBallot(a, b Ballot) bool {
	return a.Term > b.Term || a.Term == b.Term && b.Pre && !a.Pre
}

// dropOlder forgets what a candidate had parked if it asks again.
func (g *Grantor) dropOlder(b Ballot) {
	g.parked = slices.DeleteFunc(g.parked, func(p Ballot) bool {
		older := p.Candidate == b.Candidate && !newerBallot(p, b)
		if older {
			g.stats.Dropped++
		}
		return older
	})
}

// dropObsolete forgets what was parked before a promise was extended, unless its candidate is in a later term for good.
// A term that has a leader needs no votes any more; and who only asked whether it would get some asks again, if it still
// hears no leader. Let through when this leader is gone, they would be mistaken for those of somebody who takes over.
func (g *Grantor) dropObsolete() {
	g.parked = slices.DeleteFunc(g.parked, func(b Ballot) bool {
		moot := b.Pre || b.Term <= g.promise.term
		if moot {
			g.stats.Dropped++
		}
		return moot
	})
}

// Unpark returns the ballots that raft may see now, in the order in which they came. Before it hands them on, the
// caller makes raft forget a leader that has been silent for an election timeout: raft counts that in ticks, and
// may still refuse on its own account.
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
