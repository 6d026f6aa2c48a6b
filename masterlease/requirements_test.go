package masterlease

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// pair is a leader, member 1, and two members that follow it. All share a pair of clocks.
type pair struct {
	t         *testing.T
	clocks    *clock.Manual
	leader    *Holder
	followers [2]*Grantor // members 2 and 3
	leads     State
}

// newPair returns a cluster whose leader has won term 5 and applied its first entry. No member has made a promise yet.
func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, clocks: clock.NewManual(clock.Instant{}), leads: State{Term: 5, Leader: 1, Role: Leader}}
	var err error
	if p.leader, err = NewHolder(HolderConfig{ID: 1}); err != nil {
		t.Fatal(err)
	}
	for i := range p.followers {
		if p.followers[i], err = NewGrantor(GrantorConfig{}, Past{Bootstrap: true, Longest: 2 * time.Second}, p.now()); err != nil {
			t.Fatal(err)
		}
	}
	p.leader.Configure(Configuration{Voters: []uint64{1, 2, 3}}, p.now())
	p.leader.Observe(p.leads, p.now())
	p.leader.Applied(5, p.now())
	return p
}

func (p *pair) now() clock.Instant { return p.clocks.Now() }

func (p *pair) hear(i int, r Request) Outcome {
	return p.followers[i].Hear(Heard{From: 1, Term: r.Term, Request: r}, State{Term: r.Term, Leader: 1}, p.now())
}

// beat sends one heartbeat to both followers and returns the last grant of their answers.
func (p *pair) beat() Grant {
	p.t.Helper()
	r, ok := p.leader.Request(p.now())
	if !ok {
		p.t.Fatal("the leader sends no request")
	}
	p.clocks.Advance(time.Millisecond)
	var last Grant
	for i := range p.followers {
		p.hear(i, r)
		if g, ok := p.followers[i].Grant(1, r.Term, p.now()); ok {
			last = g
			p.leader.Receive(uint64(2+i), g, p.now())
		}
	}
	return last
}

func (p *pair) want(what string, got, want any) {
	p.t.Helper()
	if got != want {
		p.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// requirement is a requirement of "Master Leases for Berkeley DB" in the terms of Raft. Its id begins with BG for a
// guarantee, BR for a duty of the system, and BA for a duty of the user.
type requirement struct {
	id, what string
	check    func(p *pair)
	why      string // why there is no check: it does not apply to Raft, or another package fulfils it
}

var requirements = []requirement{
	{id: "BG1", what: "what is read is durable", why: "applied state holds only committed entries, with or without leases; this package decides only whether they are the newest"},
	{id: "BG2", what: "what is read is fresh", check: func(p *pair) {
		p.beat()
		p.want("check", p.leader.Check(5, p.now()), true)
		p.clocks.Advance(DefaultDuration)
		p.want("check after the end", p.leader.Check(5, p.now()), false)
	}},
	{id: "BG3", what: "a leader with authority meets no other", check: func(p *pair) {
		p.beat()
		for range 2000 { // the full check is TestNoOtherLeaderIsElectedWhileAuthorityHolds
			p.clocks.Advance(time.Millisecond)
			free := p.followers[0].Open(p.now()) || p.followers[1].Open(p.now())
			if free && p.leader.Valid(p.now()) {
				p.t.Fatalf("at %v there is authority, and a member may vote", p.now())
			}
		}
		p.want("a member may vote in the end", p.followers[0].Open(p.now()), true)
	}},
	{id: "BR1", what: "a read may choose to ignore leases", why: "a serializable read needs no authority, so it does not use this package"},
	{id: "BR2", what: "authority on the leader only", check: func(p *pair) {
		p.beat()
		h, err := NewHolder(HolderConfig{ID: 2})
		if err != nil {
			p.t.Fatal(err)
		}
		h.Configure(Configuration{Voters: []uint64{1, 2, 3}}, p.now())
		h.Observe(State{Term: 5, Leader: 1}, p.now())
		h.Applied(5, p.now())
		p.want("a follower's authority", h.Authority(), Authority{})
	}},
	{id: "BR3", what: "data read at the leader is never rolled back", why: "Raft rolls back nothing that is committed"},
	{id: "BR4", what: "no authority without a quorum of promises", check: func(p *pair) {
		p.leader.Configure(Configuration{Voters: []uint64{1, 2, 3, 4, 5}}, p.now())
		r, _ := p.leader.Request(p.now())
		p.hear(0, r)
		g, _ := p.followers[0].Grant(1, 5, p.now())
		p.leader.Receive(2, g, p.now())
		p.want("valid with two of five", p.leader.Valid(p.now()), false)
	}},
	{id: "BR5", what: "votes do not depose a leader with authority", check: func(p *pair) {
		g := p.followers[0]
		p.want("a leader with authority sees a vote", g.Vote(Ballot{Candidate: 3, Term: 9}, true, p.now()), false)
	}},
	{id: "BR5a", what: "a later leader during valid authority shows a broken clock", check: func(p *pair) {
		p.want("without authority", p.leader.HearLeader(6, p.now()), false)
		p.beat()
		p.want("of the own term", p.leader.HearLeader(5, p.now()), false)
		p.want("noticed", p.leader.HearLeader(6, p.now()), true)
		p.want("valid", p.leader.Valid(p.now()), false)
		p.want("counted", p.leader.Stats(p.now()).LaterLeaders, uint64(1))
		p.leader.Observe(State{Term: 9, Leader: 1, Role: Leader}, p.now())
		_, asks := p.leader.Request(p.now())
		p.want("asks in a later term", asks, false)
	}},
	{id: "BR6", what: "a failed send ends the lease", check: func(p *pair) {
		p.beat() // a commit does not depend on sending, so the caller decides: Renounce
		p.leader.Renounce(p.now())
		p.want("valid", p.leader.Valid(p.now()), false)
		p.beat()
		p.want("valid again", p.leader.Valid(p.now()), true)
	}},
	{id: "BR7", what: "time runs forward", check: func(p *pair) {
		p.beat() // the holder uses the faster clock, the grantor the slower one
		p.clocks.Suspend(DefaultDuration)
		p.want("valid after suspend", p.leader.Valid(p.now()), false)
		p.want("free after suspend", p.followers[0].Open(p.now()), false)
	}},
	{id: "BR8", what: "a member that has promised takes no part in elections", check: func(p *pair) {
		p.beat()
		p.want("vote", p.followers[0].Vote(Ballot{Candidate: 3, Term: 6}, false, p.now()), false)
		p.want("pre-vote", p.followers[0].Vote(Ballot{Candidate: 3, Term: 6, Pre: true}, false, p.now()), false)
		p.clocks.Advance(time.Second)
		p.want("parked, not lost", len(p.followers[0].Unpark(false, p.now())), 1)
	}},
	{id: "BR9", what: "a member that has promised accepts no new leader", why: "not needed in Raft: a quorum of free voters must have elected it, so the earlier authority is over"},
	{id: "BR10", what: "a member that has promised does not become leader", check: func(p *pair) {
		p.beat()
		p.want("campaign", errors.Is(p.followers[0].Campaign(p.now()), ErrPromised), true)
		p.want("order to campaign", p.followers[0].TimeoutNow(nil, p.now()), false)
		p.want("votes for it", p.followers[0].VoteAnswer(p.now()), false)
		p.want("elected", p.followers[0].Elected(p.now()), false)
		p.clocks.Advance(time.Second)
		p.want("campaign later", p.followers[0].Campaign(p.now()), error(nil))
	}},
	{id: "BR11", what: "a grant names a request that was processed", check: func(p *pair) {
		g := p.beat()
		g.Echo = p.now().Add(time.Millisecond)
		p.leader.Receive(2, g, p.now())
		p.want("ignored", p.leader.Stats(p.now()).Unknown, uint64(1))
	}},
	{id: "BR12", what: "check after the act", check: func(p *pair) {
		p.beat()
		term := p.leader.Authority().Term
		p.clocks.Advance(DefaultDuration) // the act took a long time
		p.want("check", p.leader.Check(term, p.now()), false)
	}},
	{id: "BR13", what: "the same duration on all sites", check: func(p *pair) {
		r, _ := p.leader.Request(p.now()) // the sites need not agree, because the duration travels in the request
		r.Duration *= 2
		p.hear(0, r)
		g, _ := p.followers[0].Grant(1, 5, p.now())
		p.want("granted", g.Duration, 2*DefaultDuration)
		p.leader.Receive(2, g, p.now())
		p.want("counted", p.leader.Authority().End, r.Stamp.Add(clock.DefaultDrift.CountPromise(DefaultDuration)-granularity))
	}},
	{id: "BR14", what: "set before start and not after", why: "a configuration is the argument of a constructor"},
	{id: "BR15", what: "both sides allow for clock drift", check: func(p *pair) {
		g := p.beat()
		opens, _ := p.followers[0].Opens(p.now())
		p.want("promised", opens, p.now().Add(clock.DefaultDrift.GrantPromise(DefaultDuration)))
		p.want("counted", p.leader.Authority().End, g.Echo.Add(clock.DefaultDrift.CountPromise(DefaultDuration)-granularity))
	}},
	{id: "BR16", what: "read operations obey by default", why: "the caller decides which reads need authority"},
	{id: "BR17", what: "an expired lease is refreshed, or the read fails", check: func(p *pair) {
		p.want("check", p.leader.Check(5, p.now()), false)
		p.beat() // any round of messages renews
		p.want("check", p.leader.Check(5, p.now()), true)
		p.leader.Refreshed(3)
		s := p.leader.Stats(p.now())
		p.want("counted", fmt.Sprint(s.Checks, s.Misses, s.Rounds, s.Readers), "2 1 1 3")
	}},
	{id: "BR18", what: "the number of sites", check: func(p *pair) {
		p.beat()
		p.leader.Configure(Configuration{Voters: []uint64{1, 2, 3, 4, 5, 6}}, p.now())
		p.want("valid with three of six", p.leader.Valid(p.now()), false)
	}},
	{id: "BR19", what: "what a grant carries", check: func(p *pair) {
		sent := p.now()
		g := p.beat()
		p.want("term, epoch, echo", fmt.Sprint(g.Term, g.Epoch, g.Echo), fmt.Sprint(5, 1, sent))
		p.want("duration, remaining", fmt.Sprint(g.Duration, g.Remaining), fmt.Sprint(DefaultDuration, clock.DefaultDrift.GrantPromise(DefaultDuration)))
	}},
	{id: "BR20", what: "the end of a promise only moves forward", check: func(p *pair) {
		p.beat()
		before, _ := p.followers[0].Opens(p.now())
		p.clocks.Advance(time.Millisecond)
		r, _ := p.leader.Request(p.now())
		r.Duration = time.Millisecond
		p.want("heard", p.hear(0, r), Promised)
		after, _ := p.followers[0].Opens(p.now())
		p.want("end", after, before)
	}},
	{id: "BR21", what: "the table is made when a member becomes leader", check: func(p *pair) {
		p.beat()
		p.leader.Observe(p.leads, p.now()) // the same state changes nothing
		p.want("valid", p.leader.Valid(p.now()), true)
		p.leader.Observe(State{Term: 6, Leader: 1, Role: Leader}, p.now())
		p.leader.Applied(6, p.now())
		p.want("valid in the next term", p.leader.Valid(p.now()), false)
	}},
	{id: "BR22", what: "promises only in answer to the leader itself", check: func(p *pair) {
		r, _ := p.leader.Request(p.now())
		p.want("of another term", p.followers[0].Hear(Heard{From: 1, Term: 6, Request: r}, State{Term: 6, Leader: 1}, p.now()), Refused)
		p.want("from another", p.followers[0].Hear(Heard{From: 3, Term: 5, Request: r}, State{Term: 5, Leader: 1}, p.now()), Refused)
	}},
	{id: "BR23", what: "only a newer stamp counts", check: func(p *pair) {
		old := p.beat()
		p.clocks.Advance(10 * time.Millisecond)
		p.beat()
		end := p.leader.Authority().End
		p.leader.Receive(2, old, p.now())
		p.leader.Receive(3, old, p.now())
		p.want("end", p.leader.Authority().End, end)
		p.want("counted", p.leader.Stats(p.now()).Stale, uint64(2))
	}},
	{id: "BR24", what: "a promise never ends before what rests on it", check: func(p *pair) {
		g := p.beat()
		p.clocks.Advance(10 * time.Millisecond)
		r, _ := p.leader.Request(p.now())
		g.Echo, g.Remaining = r.Stamp, DefaultDuration/2
		p.leader.Receive(2, g, p.now())
		p.want("noticed", p.leader.Stats(p.now()).EarlyPromises, uint64(1))
		p.want("valid", p.leader.Valid(p.now()), false)
	}},
	{id: "BR25", what: "a repeated request gets an answer again", check: func(p *pair) {
		r, _ := p.leader.Request(p.now())
		p.hear(0, r)
		p.want("heard again", p.hear(0, r), Stale)
		_, ok := p.followers[0].Grant(1, 5, p.now())
		p.want("grants", ok, true)
	}},
	{id: "BR26", what: "stamps travel alongside the message", check: func(p *pair) {
		r, _ := p.leader.Request(p.now())
		h, err := ParseHeader(Header{Request: &r}.AppendTo(nil))
		p.want("error", err, error(nil))
		p.want("request", *h.Request, r)
	}},
	{id: "BR27", what: "the newest stamp is echoed", check: func(p *pair) {
		first, _ := p.leader.Request(p.now())
		p.clocks.Advance(time.Millisecond)
		second, _ := p.leader.Request(p.now())
		p.hear(0, second)
		p.hear(0, first)
		g, _ := p.followers[0].Grant(1, 5, p.now())
		p.want("echo", g.Echo, second.Stamp)
	}},
	{id: "BR28", what: "expiry is natural, or forced at once", check: func(p *pair) {
		p.beat()
		_, released := p.leader.Stop(p.now())
		p.want("released", released, true)
		p.want("valid", p.leader.Valid(p.now()), false)
	}},
	{id: "BR29", what: "grants that arrive after a forced expiry", check: func(p *pair) {
		g := p.beat()
		p.leader.Renounce(p.now())
		p.clocks.Advance(time.Millisecond)
		g.Echo = g.Echo.Add(time.Microsecond)
		p.leader.Receive(2, g, p.now())
		p.want("valid", p.leader.Valid(p.now()), false)
		p.want("counted", p.leader.Stats(p.now()).OtherEpoch, uint64(1))
	}},
	{id: "BR30", what: "valid: unexpired, and an entry of the own term is applied", check: func(p *pair) {
		p.leader.Observe(State{Term: 6, Leader: 1, Role: Leader}, p.now())
		p.beat()
		p.want("valid", p.leader.Valid(p.now()), false)
		p.leader.Applied(5, p.now())
		p.want("valid with one of an earlier term", p.leader.Valid(p.now()), false)
		p.leader.Applied(6, p.now())
		p.want("valid with one of its own", p.leader.Valid(p.now()), true)
	}},
	{id: "BR31", what: "an election waits for the rest of the promise", check: func(p *pair) {
		p.beat()
		var e *PromisedError
		if err := p.followers[0].Campaign(p.now()); !errors.As(err, &e) {
			p.t.Fatalf("got %v", err)
		}
		p.want("promised leader", e.Leader, uint64(1))
		p.clocks.Advance(e.Wait - 1)
		p.want("open just before", p.followers[0].Open(p.now()), false)
		p.clocks.Advance(1)
		p.want("open", p.followers[0].Open(p.now()), true)
	}},
	{id: "BR32", what: "a waiting member asks which member leads", why: "heartbeats name the leader"},
	{id: "BR33", what: "every message of a leader carries a request", check: func(p *pair) {
		for range 3 {
			p.clocks.Advance(time.Millisecond)
			_, ok := p.leader.Request(p.now())
			p.want("asks", ok, true)
		}
	}},
	{id: "BR34", what: "an idle leader stays", check: func(p *pair) {
		for range 100 {
			p.beat()
			p.want("valid", p.leader.Valid(p.now()), true)
			p.want("free", p.followers[0].Open(p.now()), false)
			p.clocks.Advance(DefaultDuration / 3)
		}
	}},
	{id: "BR35", what: "a leader that steps down gives up its authority first", check: func(p *pair) {
		p.beat()
		r, ok := p.leader.Observe(State{Term: 5}, p.now())
		p.want("released", ok, true)
		p.want("valid", p.leader.Valid(p.now()), false)
		p.want("free before the release", p.followers[0].Open(p.now()), false)
		p.want("ended", p.followers[0].Release(r), true)
		p.want("free", p.followers[0].Open(p.now()), true)
	}},
	{id: "BR36", what: "a member that has just started holds off votes once", check: func(p *pair) {
		g, err := NewGrantor(GrantorConfig{}, Past{Longest: time.Second}, p.now())
		if err != nil {
			p.t.Fatal(err)
		}
		p.want("vote", g.Vote(Ballot{Candidate: 3, Term: 6, Release: &Release{Leader: 1, Term: 5, Epoch: 1}}, false, p.now()), false)
		p.want("hold-off", g.InHoldOff(p.now()), true)
		p.clocks.Advance(time.Second + 1)
		p.want("hold-off later", g.InHoldOff(p.now()), false)
		p.want("open", g.Open(p.now()), true)
	}},
	{id: "BR37", what: "mixed versions", check: func(p *pair) {
		g, ok := p.followers[0].Grant(1, 5, p.now()) // no leader sent a request
		p.want("grant unasked", fmt.Sprint(g, ok), fmt.Sprint(Grant{}, false))
		_, err := ParseHeader([]byte{version + 1, 0})
		p.want("another version", errors.Is(err, ErrMalformed), true)
	}},
	{id: "BA1", what: "majority acknowledgement", why: "built into Raft"},
	{id: "BA2", what: "never declare a leader", check: func(p *pair) {
		p.beat()
		p.want("elected without asking", p.followers[1].Elected(p.now()), false)
		p.want("counted", p.followers[1].Stats(p.now()).Usurped, uint64(1))
	}},
	{id: "BA3", what: "sending reports a missing majority", why: "the commit index does"},
	{id: "BA4", what: "set the number of sites", why: "it is the applied configuration: BR18"},
	{id: "BA5", what: "leases are all or none", check: func(p *pair) {
		r, _ := p.leader.Request(p.now()) // not needed: each promise stands alone, and member 3 makes none
		p.hear(0, r)
		g, _ := p.followers[0].Grant(1, 5, p.now())
		p.leader.Receive(2, g, p.now())
		p.want("valid with two of three", p.leader.Valid(p.now()), true)
	}},
	{id: "BA6", what: "forward reads to the leader", why: "it is done where reads are"},
	{id: "BA7", what: "storage keeps what it has synced", check: func(p *pair) {
		r, _ := p.leader.Request(p.now())
		r.Duration = 3 * time.Second
		p.want("longer than on record", p.hear(0, r), Unpersisted)
		_, granted := p.followers[0].Grant(1, 5, p.now())
		p.want("granted", granted, false)
		longest, needed := p.followers[0].ToPersist()
		p.want("to persist", fmt.Sprint(longest, needed), fmt.Sprint(clock.DefaultDrift.GrantPromise(3*time.Second), true))
		p.followers[0].Persisted(longest)
		p.followers[0].Persisted(time.Second) // of another record, which is shorter
		p.want("on record", p.hear(0, r), Promised)
	}},
	{id: "BA8", what: "entries and hard state of one Ready are one write", why: "it is done where the log is; the configurations of TestNoOtherLeaderIsElectedWhileAuthorityHolds rely on it"},
}

func TestMasterLeaseRequirementsHold(t *testing.T) {
	var ids []string
	for _, r := range requirements {
		ids = append(ids, r.id)
		if r.check == nil {
			if r.why == "" {
				t.Errorf("%s is neither checked nor explained", r.id)
			}
			continue
		}
		t.Run(r.id+" "+r.what, func(t *testing.T) { r.check(newPair(t)) })
	}
	var all []string
	for _, of := range []struct {
		letter string
		n      int
	}{{"BG", 3}, {"BR", 37}, {"BA", 8}} {
		for i := range of.n {
			all = append(all, fmt.Sprint(of.letter, i+1))
			if all[len(all)-1] == "BR5" {
				all = append(all, "BR5a")
			}
		}
	}
	if got, want := strings.Join(ids, " "), strings.Join(all, " "); got != want {
		t.Errorf("the list is %s, want %s", got, want)
	}
}
