package masterlease

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Each test in this file covers guards of this package, and fails if one of them is removed. The random worlds reach most
// of these guards only by luck.

// Clocks may show negative readings. The zero authority does not hold then either.
func TestZeroAuthorityNeverHolds(t *testing.T) {
	before := clock.Instant{Raw: -int64(time.Hour), Boot: -int64(time.Hour)}
	h, err := NewHolder(HolderConfig{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if (Authority{}).Holds(before) || h.Valid(before) || h.Comfortable(before) {
		t.Error("a member that never led has authority")
	}
}

// An instant is newer than another one if it is later on one clock and earlier on neither.
func TestInstantsThatCrossAreNotNewer(t *testing.T) {
	one, other := clock.Instant{Raw: 1, Boot: 2}, clock.Instant{Raw: 2, Boot: 1}
	if newer(one, other) || newer(other, one) || newer(one, one) {
		t.Error("of two instants that cross, one is newer")
	}
	if !newer(clock.Instant{Raw: 1, Boot: 3}, one) || !newer(clock.Instant{Raw: 2, Boot: 2}, one) {
		t.Error("an instant that is later on one clock only is not newer")
	}
}

// bound returns a grantor that has promised leader 1 of term 5, in epoch 1, for the given stamp.
func bound(t *testing.T, stamp clock.Instant) *Grantor {
	t.Helper()
	g, err := NewGrantor(GrantorConfig{}, Past{Bootstrap: true, Longest: 10 * time.Second}, clock.Instant{})
	if err != nil {
		t.Fatal(err)
	}
	if got := heard(g, 1, 5, 1, stamp); got != Promised {
		t.Fatal(got)
	}
	return g
}

func heard(g *Grantor, from, term, epoch uint64, stamp clock.Instant) Outcome {
	r := Request{Term: term, Epoch: epoch, Stamp: stamp, Duration: time.Second}
	return g.Hear(Heard{From: from, Term: term, Request: r}, State{Term: term, Leader: from}, clock.Instant{})
}

// Epochs are compared only within a term, and stamps only within an epoch. A leader of a later term may have
// clocks that show less, and starts with the first epoch.
func TestLaterTermsAndEpochsStartNewPromises(t *testing.T) {
	high, low := clock.Instant{Raw: 9, Boot: 9}, clock.Instant{Raw: 3, Boot: 3}
	for what, test := range map[string]struct {
		before            func(g *Grantor)
		from, term, epoch uint64
		stamp             clock.Instant
		want              Outcome
	}{
		"another leader in a later term":     {from: 2, term: 6, epoch: 1, stamp: low, want: Promised},
		"the same one in a later term":       {from: 1, term: 6, epoch: 1, stamp: low, want: Promised},
		"a later epoch, with the same stamp": {from: 1, term: 5, epoch: 2, stamp: high, want: Promised},
		"the same stamp again":               {from: 1, term: 5, epoch: 1, stamp: high, want: Stale},
		"another leader in the same term":    {from: 2, term: 5, epoch: 1, stamp: high, want: Refused},
		"leader 0":                           {from: 0, term: 6, epoch: 1, stamp: high, want: Refused},
		"after a release, in the same epoch": {func(g *Grantor) { g.Release(Release{1, 5, 1}) }, 1, 5, 1, clock.Instant{Raw: 10, Boot: 10}, Stale},
		"after a release, in a later term":   {func(g *Grantor) { g.Release(Release{1, 5, 1}) }, 1, 6, 1, high, Promised},
		"a later term, with its first epoch": {func(g *Grantor) { heard(g, 1, 5, 2, high) }, 1, 6, 1, high, Promised},
	} {
		g := bound(t, high)
		if test.before != nil {
			test.before(g)
		}
		if got := heard(g, test.from, test.term, test.epoch, test.stamp); got != test.want {
			t.Errorf("%s: %v, not %v", what, got, test.want)
		}
	}
}

// A member without a promise receives votes and may be elected.
func TestOpenGateLetsVotesIn(t *testing.T) {
	g := bound(t, clock.Instant{})
	if g.VoteAnswer(clock.Instant{}) || g.Elected(clock.Instant{}) {
		t.Error("a vote passes while a promise binds")
	}
	g.Release(Release{1, 5, 1})
	if !g.VoteAnswer(clock.Instant{}) || !g.Elected(clock.Instant{}) {
		t.Error("a vote is refused though nothing is promised")
	}
	if s := g.Stats(clock.Instant{}); s.Dropped != 1 || s.Usurped != 1 {
		t.Errorf("the counters are %+v", s)
	}
}

// The grantor parks the newest ballot of each candidate. A ballot of a later term is newer. Within a term a
// vote is newer than a pre-vote, and otherwise the last one is newest. An older ballot that passes the gate
// removes no newer one.
func TestNewestBallotIsParked(t *testing.T) {
	now := clock.Instant{}
	for _, test := range []struct {
		first, second Ballot
		want          string
	}{
		{Ballot{Term: 6}, Ballot{Term: 7, Pre: true}, "second"},
		{Ballot{Term: 7, Pre: true}, Ballot{Term: 6}, "first"},
		{Ballot{Term: 6, Pre: true}, Ballot{Term: 6, Pre: true}, "second"},
		{Ballot{Term: 6}, Ballot{Term: 6, Pre: true}, "first"},
		{Ballot{Term: 6, Pre: true}, Ballot{Term: 6}, "second"},
	} {
		g := bound(t, now)
		test.first.Message, test.second.Message = "first", "second"
		for _, b := range []Ballot{test.first, test.second} {
			b.Candidate = 3
			if g.Vote(b, false, now) {
				t.Fatal("a ballot passes while a promise binds")
			}
		}
		g.Release(Release{1, 5, 1})
		if got := g.Unpark(false, now); len(got) != 1 || got[0].Message != test.want {
			t.Errorf("of %+v and %+v, the grantor parked %+v", test.first, test.second, got)
		}
	}
	g := bound(t, now)
	g.Vote(Ballot{Candidate: 3, Term: 7, Message: "newer"}, false, now)
	if !g.Vote(Ballot{Candidate: 3, Term: 6, Release: &Release{1, 5, 1}}, false, now) {
		t.Fatal("a ballot does not pass with a release")
	}
	if got := g.Unpark(false, now); len(got) != 1 || got[0].Message != "newer" {
		t.Errorf("after an older ballot passed, the grantor parked %+v", got)
	}
}

// A leader that hands over has no authority and sends no requests. It issues one release. If it loses its
// term meanwhile, it no longer leads.
func TestNoAuthorityDuringAHandover(t *testing.T) {
	p := newPair(t)
	p.beat()
	over := p.leads
	over.Transferee = 2
	if r, gave := p.leader.Observe(over, p.now()); !gave || r != (Release{1, 5, 1}) {
		t.Fatalf("released %+v, %v", r, gave)
	}
	if r, gave := p.leader.Observe(over, p.now()); gave {
		t.Errorf("released again: %+v", r)
	}
	if _, asks := p.leader.Request(p.now()); asks || p.leader.Valid(p.now()) || p.leader.epoch != 1 {
		t.Error("the leader had authority again before the handover ended")
	}
	if _, is := p.leader.Released(); !is {
		t.Error("there is no release for the order to campaign")
	}
	p.leader.Observe(State{Term: 6, Leader: 2}, p.now())
	if _, is := p.leader.Released(); is || p.leader.leading {
		t.Error("a follower hands over")
	}
}

// A release that Stop has returned is not issued again.
func TestStopReleasesOnce(t *testing.T) {
	p := newPair(t)
	p.beat()
	over := p.leads
	over.Transferee = 2
	p.leader.Observe(over, p.now())
	if _, gave := p.leader.Stop(p.now()); !gave {
		t.Fatal("Stop returned no release")
	}
	if r, is := p.leader.Released(); is {
		t.Errorf("released for the order to campaign: %+v", r)
	}
	if r, gave := p.leader.Observe(State{Term: 6, Leader: 2}, p.now()); gave {
		t.Errorf("released when it was deposed: %+v", r)
	}
}

// Grants count only as answers to requests of this term, and only at a member that still leads.
func TestGrantsOfAnotherTermDoNotCount(t *testing.T) {
	p := newPair(t)
	g := p.beat()
	p.leader.Observe(State{Term: 5, Leader: 2}, p.now())
	before := p.leader.Stats(p.now())
	g.Remaining = 0 // would show a broken clock
	p.leader.Receive(2, g, p.now())
	if after := p.leader.Stats(p.now()); after.OtherTerm != before.OtherTerm+1 || after.Fault != NoFault {
		t.Errorf("a member that does not lead took a grant: %+v", after)
	}
	p.leader.Observe(State{Term: 6, Leader: 1, Role: Leader}, p.now())
	p.leader.Applied(6, p.now())
	g.Term, g.Remaining = 6, time.Second
	p.leader.Receive(2, g, p.now())
	p.leader.Receive(3, g, p.now())
	if p.leader.Valid(p.now()) {
		t.Error("stamps of an earlier term counted in this one")
	}
}

// Only a leader can be silent.
func TestFollowerIsNotSilent(t *testing.T) {
	p := newPair(t)
	p.leader.Progress(Progress{Last: 9, Synced: 1, Committed: 1}, p.now())
	p.clocks.Advance(time.Minute)
	p.leader.Progress(Progress{Last: 9, Synced: 1, Committed: 1}, p.now())
	if !p.leader.Silent(p.now()) {
		t.Fatal("a leader whose disk hangs is not silent")
	}
	p.leader.Observe(State{Term: 6, Leader: 2}, p.now())
	if p.leader.Silent(p.now()) {
		t.Error("a follower is silent")
	}
}

// The number of marks for a lagging disk does not grow with the number of calls of Progress.
func TestMarksOfALateDiskAreBounded(t *testing.T) {
	p := newPair(t)
	for i := range uint64(10_000) {
		p.clocks.Advance(100 * time.Microsecond)
		p.leader.Progress(Progress{Last: 10 + i, Synced: 1, Committed: 9 + i}, p.now())
	}
	if n := len(p.leader.stall.lagging); n > marksPerLimit+1 {
		t.Errorf("%d marks are kept", n)
	}
}

// The holder suspects a peer only after a whole window, and only if neither of its clocks keeps the bound.
func TestPeerIsSuspectedForBothClocks(t *testing.T) {
	for _, test := range []struct {
		raw, boot time.Duration // by how much the peer's clocks go ahead in a window
		suspect   bool
	}{
		{0, 0, false}, {10 * time.Second, 0, false}, {0, 10 * time.Second, false}, {10 * time.Second, 10 * time.Second, true},
	} {
		p := newPair(t)
		grant := func(reading clock.Instant) {
			r, _ := p.leader.Request(p.now())
			p.leader.Receive(2, Grant{Term: 5, Epoch: 1, Echo: r.Stamp, Duration: DefaultDuration, Remaining: 10 * time.Second, Reading: reading}, p.now())
		}
		grant(p.now())
		p.clocks.Advance(DefaultRateWindow / 2)
		grant(clock.Instant{Raw: p.now().Raw + int64(test.raw), Boot: p.now().Boot + int64(test.boot)})
		if r, suspect := p.leader.Rate(2); suspect || r.Over != 0 {
			t.Errorf("the peer is judged after half a window: %+v", r)
		}
		p.clocks.Advance(DefaultRateWindow / 2)
		grant(clock.Instant{Raw: p.now().Raw + int64(test.raw), Boot: p.now().Boot + int64(test.boot)})
		if r, suspect := p.leader.Rate(2); suspect != test.suspect || r.Over != DefaultRateWindow {
			t.Errorf("clocks that ran ahead by %v and %v: rate %+v, suspected: %v", test.raw, test.boot, r, suspect)
		}
	}
}

// A release needs each of its numbers. A header is empty only without any part.
func TestReleaseHeaderNeedsAllItsNumbers(t *testing.T) {
	for _, bad := range []Release{{0, 5, 1}, {1, 0, 1}, {1, 5, 0}} {
		if h, err := ParseHeader(Header{Release: &bad}.AppendTo(nil)); err == nil {
			t.Errorf("parsed %+v from an encoding of the invalid %+v", h, bad)
		}
	}
	for _, h := range []Header{{Request: new(Request)}, {Grant: new(Grant)}, {Release: new(Release)}} {
		if h.Empty() {
			t.Errorf("Empty reports true for %+v", h)
		}
	}
	if !(Header{}).Empty() {
		t.Error("a header without parts is not empty")
	}
}
