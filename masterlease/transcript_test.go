package masterlease

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
)

// Grantor and holder behave as the transcripts in testdata specify. A file is a conversation with one grantor or one
// holder, whose clocks start at zero.
//
//	grantor                    of a founder with a recorded length of 10 s; [fresh] without a record;
//	                           [record=d] of a member that restarts with that record; [drift=ppm] [max=d] [parked=n]
//	hear 1 5 10ms              a message of member 1, which leads term 5, with a request that it stamped at 10ms;
//	                           [epoch=n] [want=d] [drift=ppm]; the state of raft afterwards: [role=r] [term=n] [leader=n]
//	grant 1 5                  an answer to member 1 in term 5 leaves
//	vote 3 6                   member 3 asks for a vote in term 6; [pre] [release=leader/term/epoch] [leads]
//	unpark, timeout-now, vote-answer, campaign, elected, release 1/5/1
//	persist                    the length of ToPersist is written to stable storage
//
//	holder                     of member 1; [drift=ppm] [duration=d] [stall=d] [window=d]
//	config voters=(1,2,3)      is applied; [outgoing=(…)] [learners=(…)]
//	pending voters=(…)         is in the log and not applied
//	state term=5 role=leader   the state of raft; [transferee=n]
//	applied 5                  an entry of term 5 is applied
//	request                    a message is about to be sent
//	echo 2 10ms                a grant of member 2 that echoes the stamp 10ms; [term=n] [epoch=n] [want=d] [drift=ppm]
//	                           [remaining=d] [reading=d] [boot=d] [domain=n]
//	check 5, hear-leader 6, renounce, stop, trust, released, rate 2
//	progress last=3 synced=2 committed=1, silent; [catching-up]
//
//	advance 3s                 time passes on both clocks
//	suspend 3s                 only the boot clock counts it
//	slew raw=3s boot=2s        time passes differently on the two clocks
//	stats
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play {
		tr := &conversation{clocks: clock.NewManual(clock.Instant{})}
		return func(t *testing.T, d *datadriven.TestData) string {
			tr.t, tr.d = t, d
			return tr.run()
		}
	})
}

type conversation struct {
	t      *testing.T
	d      *datadriven.TestData
	clocks *clock.Manual
	g      *Grantor
	h      *Holder
}

func (tr *conversation) run() string {
	switch tr.d.Cmd {
	case "grantor", "holder":
		return tr.create()
	case "advance", "suspend", "slew":
		return tr.pass()
	case "stats":
		if tr.g != nil {
			return strings.Trim(fmt.Sprintf("%+v", tr.g.Stats(tr.clocks.Now())), "{}")
		}
		return strings.Trim(fmt.Sprintf("%+v", tr.h.Stats(tr.clocks.Now())), "{}")
	}
	if tr.g != nil {
		return tr.grantor()
	}
	return tr.holder()
}

func (tr *conversation) create() string {
	tr.g, tr.h, tr.clocks = nil, nil, clock.NewManual(clock.Instant{})
	now := tr.clocks.Now()
	var err error
	if tr.d.Cmd == "holder" {
		tr.h, err = NewHolder(HolderConfig{ID: 1, Drift: clock.Drift(tr.number("drift", 0)), Duration: tr.duration("duration", 0),
			StallTimeout: tr.duration("stall", 0), RateWindow: tr.duration("window", 0)})
	} else {
		past := Past{Bootstrap: true, Longest: 10 * time.Second}
		switch {
		case tr.d.HasArg("record"):
			past = Past{Longest: tr.duration("record", 0)}
		case tr.d.HasArg("fresh"):
			past.Longest = 0
		}
		tr.g, err = NewGrantor(GrantorConfig{Drift: clock.Drift(tr.number("drift", 0)), MaxDuration: tr.duration("max", 0),
			MaxParked: int(tr.number("parked", 0))}, past, now)
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (tr *conversation) pass() string {
	switch tr.d.Cmd {
	case "advance":
		tr.clocks.Advance(tr.word(0))
	case "suspend":
		tr.clocks.Suspend(tr.word(0))
	case "slew":
		tr.clocks.AdvanceBy(tr.duration("raw", 0), tr.duration("boot", 0))
	}
	if tr.g != nil {
		return fmt.Sprintf("%v: %s", tr.clocks.Now(), tr.gate())
	}
	return fmt.Sprintf("%v: %s", tr.clocks.Now(), tr.authority())
}

func (tr *conversation) gate() string {
	now := tr.clocks.Now()
	if opens, shut := tr.g.Opens(now); shut {
		return fmt.Sprintf("gate shut until after %v", opens)
	}
	return "gate open"
}

func (tr *conversation) authority() string {
	now, a := tr.clocks.Now(), tr.h.Authority()
	switch {
	case a == Authority{}:
		return "no authority"
	case !a.Holds(now):
		return fmt.Sprintf("authority for term %d, epoch %d is over", a.Term, a.Epoch)
	case a.End == forever:
		return fmt.Sprintf("authority for term %d, epoch %d for ever", a.Term, a.Epoch)
	}
	return fmt.Sprintf("authority for term %d, epoch %d until %v", a.Term, a.Epoch, a.End)
}

func (tr *conversation) grantor() string {
	g, now := tr.g, tr.clocks.Now()
	switch tr.d.Cmd {
	case "hear":
		from, term := tr.id(0), tr.id(1)
		outcome := g.Hear(Heard{From: from, Term: term, Request: Request{Term: term, Epoch: tr.number("epoch", 1), Stamp: clock.Instant{}.Add(tr.word(2)),
			Duration: tr.duration("want", DefaultDuration), Drift: clock.Drift(tr.number("drift", uint64(clock.DefaultDrift)))}},
			State{Term: tr.number("term", term), Leader: tr.number("leader", from), Role: tr.role()}, now)
		return fmt.Sprintf("%v; %s", outcome, tr.gate())
	case "grant":
		grant, ok := g.Grant(tr.id(0), tr.id(1), now)
		if !ok {
			return "nothing"
		}
		return fmt.Sprintf("term %d, epoch %d, echoes %v, for %v at %d ppm, %v remain", grant.Term, grant.Epoch, grant.Echo, grant.Duration, uint32(grant.Drift), grant.Remaining)
	case "vote":
		if g.Vote(Ballot{Candidate: tr.id(0), Term: tr.id(1), Pre: tr.d.HasArg("pre"), Release: tr.release()}, tr.d.HasArg("leads"), now) {
			return "raft sees it"
		}
		return "parked"
	case "unpark":
		out := "nothing"
		for i, b := range g.Unpark(tr.d.HasArg("leads"), now) {
			if i == 0 {
				out = ""
			}
			out += fmt.Sprintf("raft sees candidate %d, term %d, pre-vote %v\n", b.Candidate, b.Term, b.Pre)
		}
		return out
	case "timeout-now":
		return tr.passes(g.TimeoutNow(tr.release(), now))
	case "vote-answer":
		return tr.passes(g.VoteAnswer(now))
	case "elected":
		return fmt.Sprint(g.Elected(now))
	case "campaign":
		if err := g.Campaign(now); err != nil {
			return err.Error()
		}
		return "go"
	case "release":
		return fmt.Sprintf("ended a promise: %v; %s", g.Release(*tr.parseRelease(tr.d.CmdArgs[0].Key)), tr.gate())
	case "persist":
		longest, needed := g.ToPersist()
		if needed {
			g.Persisted(longest)
		}
		return fmt.Sprintf("%v, needed: %v", longest, needed)
	}
	tr.t.Fatalf("unknown command %s", tr.d.Cmd)
	return ""
}

func (tr *conversation) passes(ok bool) string {
	if ok {
		return "raft sees it"
	}
	return "dropped"
}

func (tr *conversation) holder() string {
	h, now := tr.h, tr.clocks.Now()
	switch tr.d.Cmd {
	case "config":
		h.Configure(tr.config(), now)
	case "pending":
		h.Pending(tr.config(), now)
	case "state":
		if r, ok := h.Observe(State{Term: tr.number("term", 0), Role: tr.role(), Transferee: tr.number("transferee", 0)}, now); ok {
			return fmt.Sprintf("releases term %d, epoch %d; %s", r.Term, r.Epoch, tr.authority())
		}
	case "applied":
		h.Applied(tr.id(0), now)
	case "request":
		r, ok := h.Request(now)
		if !ok {
			return "nothing"
		}
		return fmt.Sprintf("term %d, epoch %d, stamp %v, for %v at %d ppm", r.Term, r.Epoch, r.Stamp, r.Duration, uint32(r.Drift))
	case "echo":
		echo := clock.Instant{}.Add(tr.word(1))
		reading := clock.Instant{}.Add(tr.duration("reading", tr.word(1)))
		reading.Boot = int64(tr.duration("boot", time.Duration(reading.Boot)))
		h.Receive(tr.id(0), Grant{Term: tr.number("term", 5), Epoch: tr.number("epoch", 1), Echo: echo,
			Duration: tr.duration("want", DefaultDuration), Drift: clock.Drift(tr.number("drift", uint64(clock.DefaultDrift))),
			Remaining: tr.duration("remaining", DefaultDuration), Reading: reading, Domain: tr.number("domain", 0)}, now)
	case "check":
		return fmt.Sprint(h.Check(tr.id(0), now))
	case "hear-leader":
		return fmt.Sprintf("broken clock: %v; %s", h.HearLeader(tr.id(0), now), tr.authority())
	case "renounce":
		h.Renounce(now)
	case "stop":
		r, ok := h.Stop(now)
		return fmt.Sprintf("releases: %v %+v; %s", ok, r, tr.authority())
	case "released":
		r, ok := h.Released()
		return fmt.Sprintf("%v %+v", ok, r)
	case "trust":
		h.Trust(now)
	case "rate":
		r, suspect := h.Rate(tr.id(0))
		return fmt.Sprintf("raw %+d ppm, boot %+d ppm, over %v, suspect: %v", r.Raw, r.Boot, r.Over, suspect)
	case "progress":
		h.Progress(Progress{Last: tr.number("last", 0), Synced: tr.number("synced", 0), Committed: tr.number("committed", 0),
			CatchingUp: tr.d.HasArg("catching-up")}, now)
	case "silent":
		return fmt.Sprint(h.Silent(now))
	default:
		tr.t.Fatalf("unknown command %s", tr.d.Cmd)
	}
	return tr.authority()
}

func (tr *conversation) id(i int) uint64 {
	n, err := strconv.ParseUint(tr.d.CmdArgs[i].Key, 10, 64)
	if err != nil {
		tr.t.Fatal(err)
	}
	return n
}

func (tr *conversation) word(i int) time.Duration {
	return transcript.Duration(tr.t, transcript.Word(tr.d, i))
}

func (tr *conversation) duration(key string, otherwise time.Duration) time.Duration {
	transcript.Scan(tr.t, tr.d, key, &otherwise)
	return otherwise
}

func (tr *conversation) number(key string, otherwise uint64) uint64 {
	if arg, ok := tr.d.Arg(key); ok {
		n, err := strconv.ParseUint(arg.Vals[0], 10, 64)
		if err != nil {
			tr.t.Fatal(err)
		}
		return n
	}
	return otherwise
}

func (tr *conversation) role() Role {
	if arg, ok := tr.d.Arg("role"); ok {
		role, ok := map[string]Role{"follower": Follower, "pre-candidate": PreCandidate, "candidate": Candidate, "leader": Leader}[arg.Vals[0]]
		if !ok {
			tr.t.Fatalf("unknown role %s", arg.Vals[0])
		}
		return role
	}
	return Follower
}

func (tr *conversation) release() *Release {
	if arg, ok := tr.d.Arg("release"); ok {
		return tr.parseRelease(arg.Vals[0])
	}
	return nil
}

func (tr *conversation) parseRelease(s string) *Release {
	var r Release
	if _, err := fmt.Sscanf(s, "%d/%d/%d", &r.Leader, &r.Term, &r.Epoch); err != nil {
		tr.t.Fatal(err)
	}
	return &r
}

func (tr *conversation) config() Configuration {
	set := func(key string) (ids []uint64) {
		if arg, ok := tr.d.Arg(key); ok {
			for _, v := range arg.Vals {
				n, err := strconv.ParseUint(v, 10, 64)
				if err != nil {
					tr.t.Fatal(err)
				}
				ids = append(ids, n)
			}
		}
		return ids
	}
	return Configuration{Voters: set("voters"), Outgoing: set("outgoing"), Learners: set("learners")}
}
