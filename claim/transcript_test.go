package claim_test

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/transcript"
)

// TestTranscripts plays the files in testdata: processes on machines with unrelated clocks, and one database.
// Every instant shown is on the clock of the process that the command names.
//
//	world                     an empty database; [boots]: domains with that in their name have ended
//	machine a at=1h           its clocks show 1h, and it has one process, which has its name; [drift=ppm]
//	                          [rate=ppm]: how much faster its clocks are; [acknowledge=d]: it writes clock records
//	process b on=a            one more process there
//	a claim job 30s           [waits]; [again]: with the id of the claim before
//	a extend job              [ttl]
//	a release|expire|get|pin|unpin|announce|observe|refresh job …
//	a mark job tick           its lease completes the tick, and goes on
//	a finish job tick         [for d]; tick may be -, which records nothing
//	a marked job              the mark of the name
//	a replace job old mark    each is -, or token/tick
//	a resume job token
//	a revoke job token why    [now]
//	a collect, a floor 100
//	a fate lost unanswered    the faults of its next writes: see wire
//	a blind|sees              from now on it cannot read, or can
//	arrive a                  its parked writes arrive
//	a calls                   its calls of the store since the last command like this
//	pass 10s                  time passes for all
//	suspend a 10s             its machine sleeps
//	record job                the record in the database
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play {
		var play *play
		return func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "world" {
				play = newPlay(t)
				return ""
			}
			return play.do(t, d)
		}
	})
}

type play struct {
	*world
	by     map[string]*actor
	leases map[string]*claim.Lease // by actor and name
	last   map[string]claim.Request
}

func newPlay(t *testing.T) *play {
	return &play{
		world: newWorld(t), by: make(map[string]*actor),
		leases: make(map[string]*claim.Lease), last: make(map[string]claim.Request),
	}
}

func (p *play) do(t *testing.T, d *datadriven.TestData) string {
	words := transcript.Words(d)
	switch d.Cmd {
	case "machine":
		var at, acknowledge string
		drift, rate := 1, 0
		d.ScanArgs(t, "at", &at)
		d.MaybeScanArgs(t, "drift", &drift)
		d.MaybeScanArgs(t, "rate", &rate)
		d.MaybeScanArgs(t, "acknowledge", &acknowledge)
		a := p.actor(words[0], transcript.Duration(t, at), func(o *claim.Options) {
			o.Drift, o.Attempts = clock.Drift(drift), 2
			if acknowledge != "" {
				o.Acknowledge = transcript.Duration(t, acknowledge)
			}
		})
		a.ppm = int64(rate)
		p.by[words[0]] = a
	case "process":
		var on string
		d.ScanArgs(t, "on", &on)
		p.by[words[0]] = p.by[on].onSameMachine(words[0])
	case "pass":
		p.pass(transcript.Duration(t, words[0]))
	case "suspend":
		p.by[words[0]].clocks.move(0, transcript.Duration(t, words[1]))
	case "arrive":
		return fmt.Sprintf("%d happened", p.by[words[0]].wire.arrive())
	case "record":
		return p.record(words[0])
	default:
		a := p.by[d.Cmd]
		if a == nil {
			d.Fatalf(t, "there is no actor %s", d.Cmd)
		}
		return p.ask(t, a, words)
	}
	return "ok"
}

// ask executes one command of an actor.
func (p *play) ask(t *testing.T, a *actor, words []string) string {
	ctx, name := t.Context(), ""
	if len(words) > 1 {
		name = words[1]
	}
	l := p.leases[a.name+" "+name]
	switch words[0] {
	case "claim":
		return p.claim(t, a, words)
	case "extend":
		var ttl time.Duration
		if len(words) > 2 {
			ttl = transcript.Duration(t, words[2])
		}
		return p.outcome(a, l, a.Extend(ctx, l, ttl))
	case "release":
		return p.outcome(a, nil, a.Release(ctx, l))
	case "mark", "finish":
		return p.outcome(a, nil, p.complete(t, a, l, words))
	case "marked":
		m, err := a.Mark(ctx, name)
		if err != nil {
			return err.Error()
		}
		return "mark " + m.Text()
	case "announce":
		return p.outcome(a, l, a.Announce(ctx, l, strings.Join(words[2:], " ")))
	case "resume":
		var token backend.Token
		_, _ = fmt.Sscan(words[2], &token)
		l, err := a.Resume(ctx, name, token, backend.Holder{ID: a.name}, p.id())
		p.leases[a.name+" "+name] = l
		return p.outcome(a, l, err)
	case "until":
		return p.outcome(a, l, nil)
	case "calls":
		return a.wire.counted()
	case "fate":
		a.wire.next = words[1:]
	case "blind":
		a.wire.down = fmt.Errorf("%w: it does not answer", backend.ErrUnavailable)
	case "sees":
		a.wire.down = nil
	case "get":
		return p.get(a, name)
	default:
		return p.outcome(a, nil, p.order(t, a, words, name))
	}
	return "ok"
}

// complete records a tick for a lease, and releases it if the command says so.
func (p *play) complete(t *testing.T, a *actor, l *claim.Lease, words []string) error {
	tick := readMark(t, words[2]).Tick
	if words[0] == "mark" {
		return a.RaiseMark(t.Context(), l, tick)
	}
	f := backend.Finish{Tick: tick}
	if len(words) > 4 {
		f.Hold = transcript.Duration(t, words[4])
	}
	return a.Finish(t.Context(), l, f)
}

// readMark reads a mark: token/tick, or a tick alone, or - for none.
func readMark(t *testing.T, text string) backend.Mark {
	token, tick, both := strings.Cut(text, "/")
	switch {
	case text == "-":
		return backend.Mark{}
	case !both:
		token, tick = "0", text
	}
	m, err := backend.ParseMark(token + " " + tick)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// order executes a command about a name, or about all names, and not about a lease.
func (p *play) order(t *testing.T, a *actor, words []string, name string) error {
	ctx := t.Context()
	switch words[0] {
	case "expire":
		return a.Expire(ctx, name)
	case "pin":
		return a.Pin(ctx, name, words[2])
	case "unpin":
		return a.Unpin(ctx, name, words[2])
	case "replace":
		done, err := a.ReplaceMark(ctx, name, readMark(t, words[2]), readMark(t, words[3]))
		if err == nil && !done {
			err = errors.New("the mark is another")
		}
		return err
	case "observe":
		return a.KeepObservation(ctx, name)
	case "refresh":
		return a.Refresh(ctx)
	case "collect":
		_, err := a.Collect(ctx, claim.Collection{})
		return err
	case "revoke":
		var token backend.Token
		_, _ = fmt.Sscan(words[2], &token)
		return a.Revoke(ctx, name, token, words[3], words[len(words)-1] == "now")
	}
	t.Fatalf("there is no command %s", words[0])
	return nil
}

func (p *play) claim(t *testing.T, a *actor, words []string) string {
	q := a.request(words[1], transcript.Duration(t, words[2]))
	for _, word := range words[3:] {
		switch word {
		case "waits":
			q.Waits = true
		case "again":
			q.ID = p.last[a.name].ID
		}
	}
	p.last[a.name] = q
	l, err := a.Claim(t.Context(), q)
	if l != nil {
		p.leases[a.name+" "+words[1]] = l
	}
	return p.outcome(a, l, err)
}

// outcome describes the result of a call.
func (p *play) outcome(a *actor, l *claim.Lease, err error) string {
	var held *backend.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Sprintf("held by %s with token %d, until %v", held.Holder, held.Token, show(a.Now().Add(held.Ends)))
	case err != nil:
		text := err.Error()
		if l != nil {
			text += fmt.Sprintf("\nrelied on until %v", show(l.Until()))
		}
		return text
	case l != nil:
		return fmt.Sprintf("token %d, relied on until %v", l.Token(), show(l.Until()))
	}
	return "ok"
}

func show(i clock.Instant) string {
	if i == (clock.Instant{}) {
		return "never"
	}
	round := func(n int64) time.Duration { return time.Duration(n).Round(time.Millisecond) }
	if round(i.Raw) == round(i.Boot) {
		return round(i.Raw).String()
	}
	return fmt.Sprintf("raw %v boot %v", round(i.Raw), round(i.Boot))
}

func (p *play) get(a *actor, name string) string {
	s := a.state(name)
	switch {
	case !s.Record.Held():
		return fmt.Sprintf("vacant, last token %d", s.Record.Token)
	case s.Over:
		return fmt.Sprintf("over since %v, token %d", show(s.Latest), s.Record.Token)
	}
	return fmt.Sprintf("held by %s with token %d, until %v at the latest", s.Record.Holder, s.Record.Token, show(s.Latest))
}

// record shows the record in the database.
func (p *play) record(name string) string {
	f, err := p.memory.Open().Get(p.Context(), name)
	if err != nil {
		return err.Error()
	}
	r := f.Record
	if !r.Exists() {
		return fmt.Sprintf("none, floor %d", f.Floor)
	}
	lines := []string{fmt.Sprintf("holder %q token %d ttl %v", r.Holder, r.Token, r.TTL),
		fmt.Sprintf("domain %s written %v expiry %v", r.Domain, show(r.Written), show(r.Expiry))}
	if len(r.Pins) > 0 {
		lines = append(lines, fmt.Sprintf("pins %q", r.Pins))
	}
	if r.Revoked != "" {
		lines = append(lines, "revoked: "+r.Revoked)
	}
	if !r.Mark.IsZero() {
		lines = append(lines, "mark "+r.Mark.Text())
	}
	sort.SliceStable(r.Past, func(i, j int) bool { return r.Past[i].Token > r.Past[j].Token })
	for _, past := range r.Past {
		lines = append(lines, fmt.Sprintf("past: token %d %s %s %s", past.Token, past.Holder.ID, past.Why, past.Note))
	}
	return strings.Join(lines, "\n")
}
