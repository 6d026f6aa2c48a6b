package supervise

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/clock"
)

func TestTermsAreChecked(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct {
		terms Terms
		want  string // part of the error, empty for none
	}{
		{Terms{TTL: 15 * s, KillAfter: 5 * s}, ""},
		{Terms{TTL: 15 * s, KillAfter: DefaultKillAfter(15 * s)}, ""},
		{Terms{TTL: 300 * ms, KillAfter: DefaultKillAfter(300 * ms)}, ""},
		{Terms{TTL: 299 * ms, KillAfter: DefaultKillAfter(299 * ms)}, "let it last 350ms or more"},
		{Terms{TTL: 299 * ms, KillAfter: s, OnLost: Kill}, "let it last 350ms or more"},
		{Terms{TTL: 15 * s, KillAfter: 5251 * ms}, "let the lease last 15.753s or more, or allow the command 5s or less"},
		{Terms{TTL: 15 * s, KillAfter: 999 * ms}, "allow the command 1s or more"},
		{Terms{TTL: 15 * s}, "allow it 1s or more"},
		{Terms{TTL: 15 * s, KillAfter: -s, OnLost: Warn}, "allow it 1s or more"},
		{Terms{TTL: 15 * s, KillAfter: time.Minute, OnLost: Kill}, ""},
		{Terms{TTL: ms, KillAfter: time.Minute, OnLost: Warn}, ""},
		{Terms{TTL: 0, KillAfter: s}, "too short"},
		{Terms{TTL: time.Hour, KillAfter: 20 * time.Minute}, ""},
	} {
		err := c.terms.Validate()
		switch {
		case err == nil && c.want != "":
			t.Errorf("%+v is accepted", c.terms)
		case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%+v: %v; want %q", c.terms, err, c.want)
		}
	}
}

func TestPoliciesAreReadByName(t *testing.T) {
	for _, p := range []Policy{Term, Kill, Warn} {
		if got, err := ParsePolicy(p.String()); got != p || err != nil {
			t.Errorf("%v: %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("nonsense"); err == nil {
		t.Error("the policy nonsense is accepted")
	}
}

// These scenarios specify when a command is ended.
func TestJudgeEndsTheCommandInTime(t *testing.T) {
	const s = time.Second
	terms := Terms{TTL: 15 * s, KillAfter: 5 * s} // SIGKILL half a second before the deadline
	type step struct {
		at   time.Duration
		does func(*judge)
		act  action
		wait time.Duration
	}
	lose := func(j *judge) { j.leaseEnded = true }
	orphan := func(j *judge) { j.wrapperEnded = true }
	end := func(j *judge) { j.headEnded = true }
	renew := func(d time.Duration) func(*judge) {
		return func(j *judge) { j.extend(clock.Instant{}.Add(d)) }
	}
	with := func(p Policy, wait bool) Terms {
		return Terms{TTL: terms.TTL, KillAfter: terms.KillAfter, OnLost: p, Wait: wait}
	}
	for name, c := range map[string]struct {
		terms Terms
		why   reason
		steps []step
	}{
		"not renewed": {terms, lost, []step{
			{0, nil, actNothing, 10 * s}, {10*s - 1, nil, actNothing, 1}, {10 * s, nil, actTerminate, 4500 * time.Millisecond},
			{11 * s, nil, actNothing, 3500 * time.Millisecond}, {14500 * time.Millisecond, nil, actKill, killAgain}, {15 * s, nil, actKill, killAgain}}},
		"renewed": {terms, running, []step{
			{5 * s, renew(20 * s), actNothing, 10 * s}, {10 * s, nil, actNothing, 5 * s}, {14 * s, renew(29 * s), actNothing, 10 * s}}},
		"renewed too late": {terms, lost, []step{
			{10 * s, nil, actTerminate, 4500 * time.Millisecond}, {11 * s, renew(26 * s), actNothing, 4 * s}, {15 * s, nil, actKill, killAgain}}},
		"lost early": {terms, lost, []step{
			{2 * s, lose, actTerminate, 5 * s}, {7 * s, nil, actKill, killAgain}}},
		"lost shortly before the deadline": {terms, lost, []step{
			{9 * s, lose, actTerminate, 5 * s}, {14 * s, nil, actKill, killAgain}}},
		"slept past the deadline": {terms, lost, []step{{16 * s, nil, actKill, killAgain}}},
		"kill":                    {with(Kill, false), lost, []step{{10 * s, nil, actNothing, 4500 * time.Millisecond}, {14500 * time.Millisecond, nil, actKill, killAgain}}},
		"kill, lost early":        {with(Kill, false), lost, []step{{s, lose, actKill, killAgain}}},
		"warn":                    {with(Warn, false), running, []step{{16 * s, lose, actNothing, forever}}},
		"warn, orphaned":          {with(Warn, false), orphaned, []step{{16 * s, orphan, actTerminate, 5 * s}, {21 * s, nil, actKill, killAgain}}},
		"orphaned":                {terms, orphaned, []step{{s, orphan, actTerminate, 5 * s}, {6 * s, nil, actKill, killAgain}}},
		"orphaned near the end":   {terms, orphaned, []step{{12 * s, orphan, actTerminate, 2500 * time.Millisecond}, {14500 * time.Millisecond, nil, actKill, killAgain}}},
		"leftovers":               {terms, leftovers, []step{{s, end, actTerminate, 5 * s}, {2 * s, lose, actNothing, 4 * s}, {6 * s, nil, actKill, killAgain}}},
		"leftovers, waited for":   {with(Term, true), lost, []step{{s, end, actNothing, 9 * s}, {10 * s, nil, actTerminate, 4500 * time.Millisecond}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJudge(c.terms, clock.Instant{}.Add(15*s))
			for _, step := range c.steps {
				if step.does != nil {
					step.does(j)
				}
				if act, wait := j.decide(clock.Instant{}.Add(step.at)); act != step.act || wait != step.wait {
					t.Errorf("at %v: act %d, wait %v; want %d, %v", step.at, act, wait, step.act, step.wait)
				}
			}
			if j.why != c.why {
				t.Errorf("why %q, want %q", j.why, c.why)
			}
		})
	}
}

// Whatever the events and however the two clocks run: if decide is called when it said, it returns actKill before the
// deadline, never returns an earlier action afterwards, and ends nothing without a reason.
func TestJudgeKillsBeforeTheDeadline(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ttl := time.Duration(rapid.Int64Range(int64(300*time.Millisecond), int64(time.Minute)).Draw(t, "ttl"))
		terms := Terms{
			TTL: ttl, KillAfter: DefaultKillAfter(ttl),
			OnLost: rapid.SampledFrom([]Policy{Term, Kill}).Draw(t, "policy"),
			Wait:   rapid.Bool().Draw(t, "wait"),
		}
		if err := terms.Validate(); err != nil {
			t.Fatal(err)
		}
		clocks := clock.NewManual(clock.Instant{Raw: 5, Boot: 7})
		j := newJudge(terms, clocks.Now().Add(ttl))
		sent := actNothing
		for range 200 {
			what, wait := j.decide(clocks.Now())
			if what != actNothing {
				if what < sent || what == actTerminate && sent == actTerminate {
					t.Fatalf("action %d is followed by %d", sent, what)
				}
				sent = what
			}
			left := clocks.Now().Remaining(j.deadline)
			if left <= terms.Lead() && sent != actKill {
				t.Fatalf("%v before the deadline, SIGKILL was not sent", left)
			}
			if sent != actNothing && left > terms.KillAfter && !j.leaseEnded && !j.wrapperEnded && !j.headEnded && j.why != lost {
				t.Fatal("the command was ended without a reason")
			}
			if wait <= 0 {
				t.Fatalf("decide returned a wait of %v", wait)
			}
			switch rapid.IntRange(0, 20).Draw(t, "event") {
			case 0:
				j.leaseEnded = true
			case 1:
				j.wrapperEnded = true
			case 2:
				j.headEnded = true
			case 3, 4, 5:
				j.extend(clocks.Now().Add(ttl))
			}
			// Both clocks advance, one perhaps further than the other, but neither past the wait that decide returned.
			raw := rapid.Int64Range(0, int64(wait)).Draw(t, "raw")
			boot := rapid.Int64Range(0, int64(wait)).Draw(t, "boot")
			clocks.AdvanceBy(time.Duration(raw), time.Duration(boot))
		}
	})
}
