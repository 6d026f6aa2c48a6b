package masterlease

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// The same quorum must hold on both clocks. With one quorum for each clock, a member could be missing in both
// by the clock that is right for it.
func TestAuthorityNeedsOneQuorumOnBothClocks(t *testing.T) {
	p := newPair(t)
	grant := func(from uint64, d time.Duration) {
		t.Helper()
		r, ok := p.leader.Request(p.now())
		if !ok {
			t.Fatal("the leader sends no request")
		}
		p.leader.Receive(from, Grant{Term: 5, Epoch: 1, Echo: r.Stamp, Duration: d, Remaining: time.Second, Reading: p.now()}, p.now())
	}
	grant(2, DefaultDuration) // older and longer
	p.clocks.AdvanceBy(100*time.Millisecond, 600*time.Millisecond)
	grant(3, DefaultDuration/2) // newer and shorter: it ends later on the boot clock, earlier on the raw one
	two, three := p.leader.peers[2].end, p.leader.peers[3].end
	if !(two.Raw > three.Raw && two.Boot < three.Boot) {
		t.Fatalf("the ends %v and %v do not cross", two, three)
	}
	if end := p.leader.Authority().End; end != two && end != three {
		t.Errorf("with one of the two the authority ends at %v, which neither voter has promised", end)
	}
	known := p.leader.peers
	p.leader.Configure(Configuration{Voters: []uint64{1, 2, 3, 4, 5}}, p.now())
	if len(known) != 2 {
		t.Fatalf("known peers: %v", known)
	}
	if end, want := p.leader.Authority().End, (clock.Instant{Raw: three.Raw, Boot: two.Boot}); end != want {
		t.Errorf("with both of the two the authority ends at %v, want %v", end, want)
	}
}

// A leader ignores a malformed grant and keeps its authority.
func TestMalformedGrantsAreIgnored(t *testing.T) {
	p := newPair(t)
	good := p.beat()
	for i, change := range []func(g *Grant){
		func(g *Grant) { g.Duration = 0 }, func(g *Grant) { g.Remaining = -1 }, func(g *Grant) { g.Drift = clock.MaxDrift + 1 },
	} {
		p.clocks.Advance(time.Millisecond)
		r, _ := p.leader.Request(p.now())
		bad := good
		bad.Echo = r.Stamp
		change(&bad)
		p.leader.Receive(2, bad, p.now())
		if got := p.leader.Stats(p.now()).Unknown; got != uint64(i+1) {
			t.Errorf("after %d malformed grants, %d were ignored", i+1, got)
		}
	}
	if !p.leader.Valid(p.now()) {
		t.Error("malformed grants have ended the authority")
	}
}

// A voter that a configuration names several times counts once.
func TestDuplicateVoterCountsOnce(t *testing.T) {
	p := newPair(t)
	p.beat()
	p.leader.Configure(Configuration{Voters: []uint64{1, 1, 1, 1, 2, 4, 5, 6}}, p.now())
	if p.leader.Valid(p.now()) {
		t.Error("a leader has authority with two of five voters")
	}
}

// Values out of range are refused when a holder or a grantor is created.
func TestBadConfigurationsAreRefused(t *testing.T) {
	for _, c := range []HolderConfig{
		{}, {ID: 1, Drift: clock.MaxDrift + 1}, {ID: 1, Duration: -1}, {ID: 1, Duration: maxDuration + 1}, {ID: 1, StallTimeout: -1}, {ID: 1, LagLimit: -1}, {ID: 1, RateWindow: -1},
	} {
		if _, err := NewHolder(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	for _, c := range []GrantorConfig{{Drift: clock.MaxDrift + 1}, {MaxDuration: -1}, {MaxDuration: maxDuration + 1}, {MaxParked: -1}} {
		if _, err := NewGrantor(c, Past{}, clock.Instant{}); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	if _, err := NewGrantor(GrantorConfig{}, Past{Longest: -1}, clock.Instant{}); err == nil {
		t.Error("a negative record is accepted")
	}
}

// A leader without grants, or with half of the time or less left, sends requests with every message.
func TestComfortableNeedsHalfOfTheDuration(t *testing.T) {
	p := newPair(t)
	if p.leader.Comfortable(p.now()) {
		t.Error("comfortable without any promise")
	}
	p.beat()
	left := p.now().Remaining(p.leader.Authority().End)
	p.clocks.Advance(left - DefaultDuration/2 - 1)
	if !p.leader.Comfortable(p.now()) {
		t.Error("not comfortable with more than half of the time left")
	}
	p.clocks.AdvanceBy(0, 1)
	if p.leader.Comfortable(p.now()) {
		t.Error("comfortable with half of the time left on one clock")
	}
	p.beat()
	p.leader.Renounce(p.now())
	if p.leader.Comfortable(p.now()) {
		t.Error("comfortable in a new epoch")
	}
}

// Requests and grants travel with every message, so they must not allocate memory.
func TestHeartbeatsAllocateNothing(t *testing.T) {
	p := newPair(t)
	p.beat()
	if n := testing.AllocsPerRun(100, func() {
		p.clocks.Advance(time.Millisecond)
		p.beat()
		p.leader.Check(5, p.now())
	}); n > 0 {
		t.Errorf("%v allocations for a heartbeat and its answers", n)
	}
}

// The longest promise with the largest drift bound saturates instead of overflowing.
func TestLongestPromiseSaturates(t *testing.T) {
	g, err := NewGrantor(GrantorConfig{MaxDuration: maxDuration}, Past{Bootstrap: true}, clock.Instant{})
	if err != nil {
		t.Fatal(err)
	}
	g.Persisted(10 * time.Hour)
	now := forever
	r := Request{Term: 5, Epoch: 1, Stamp: now, Duration: maxDuration, Drift: clock.MaxDrift}
	if got := g.Hear(Heard{From: 1, Term: 5, Request: r}, State{Term: 5, Leader: 1}, now); got != Promised {
		t.Fatal(got)
	}
	if g.Open(now) {
		t.Error("a promise at the end of time does not bind")
	}
}
