package keepalive

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

// TestTranscripts runs the specification in testdata. A file is a conversation with a holder. After every
// command that is a Step there is what it returned.
//
//	new                  a holder without drift or jitter and with the clocks at zero; [drift=ppm] [max-ids=n] [no-hedge] [seed=n]
//	claim a 10s          make a handle, which is called a; claim a claims again under the same name
//	in-line a 10s        claim answered: stands in line; [until=d]
//	granted a 10s        claim answered, or "yours"; [until=d]
//	refused a            claim answered: no
//	unknown a            nobody knows what became of the claim
//	ack 1 10s            message 1 was acknowledged for all its leases, or for those named; [until=d]
//	gone 1 a             message 1: the store says that a is gone
//	fail 1 a             message 1: no answer for a
//	returned 1           no more answers for message 1
//	ended a, releasing a, released a, release-failed a
//	advance 3s           time passes on both clocks, and it is looked at
//	suspend 3s           only the boot clock counts it
//	slew raw=3s boot=2s  time passes differently on the two clocks
//	run-until 10s        do every wake-up up to then; [answer=d]: every message is acknowledged d later
//	crowd 10000 12s      so many leases are claimed, granted and acknowledged; [over=d]: one after another
//	count 60s            run until so much later, acknowledging at once, and count the messages; [ttl=d]
//	show a               what it is, and until when
//	stats
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play { return new(conversation).run })
}

type conversation struct {
	h      *Renewer
	clocks *clock.Manual
	names  map[string]Lease
	called map[Lease]string
	sent   map[uint64][]Lease
	ttls   map[Lease]time.Duration
	wakeAt *clock.Instant
}

func (tr *conversation) run(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "new":
		return tr.create(t, d)
	case "claim":
		l, err := tr.h.Claim(tr.clocks.Now(), transcript.Duration(t, transcript.Word(d, 1)))
		if err != nil {
			return err.Error()
		}
		tr.names[transcript.Word(d, 0)], tr.called[l] = l, transcript.Word(d, 0)
		return ""
	case "in-line":
		return tr.step(Queued{tr.lease(d), tr.ttl(t, d), tr.until(t, d)})
	case "granted":
		return tr.step(Granted{tr.lease(d), tr.ttl(t, d), tr.until(t, d)})
	case "refused":
		return tr.step(Refused{tr.lease(d)})
	case "unknown":
		return tr.step(Unknown{tr.lease(d)})
	case "ack", "gone", "fail", "returned":
		return tr.message(t, d)
	case "ended":
		return tr.step(Ended{tr.lease(d)})
	case "releasing":
		return tr.step(Releasing{tr.lease(d)})
	case "released":
		return tr.step(Released{tr.lease(d)})
	case "release-failed":
		return tr.step(ReleaseFailed{tr.lease(d)})
	case "advance":
		tr.clocks.Advance(transcript.Duration(t, transcript.Word(d, 0)))
		return tr.step(Wake{})
	case "suspend":
		tr.clocks.Suspend(transcript.Duration(t, transcript.Word(d, 0)))
		return tr.step(Wake{})
	case "slew":
		var raw, boot time.Duration
		transcript.Scan(t, d, "raw", &raw)
		transcript.Scan(t, d, "boot", &boot)
		tr.clocks.AdvanceBy(raw, boot)
		return tr.step(Wake{})
	case "run-until":
		return tr.runUntil(t, d)
	case "crowd", "count":
		return tr.crowd(t, d)
	case "show":
		return tr.show(d)
	case "stats":
		return strings.Trim(fmt.Sprintf("%+v", tr.h.Stats()), "{}")
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (tr *conversation) create(t *testing.T, d *datadriven.TestData) string {
	var c Config
	var drift int
	transcript.Scan(t, d, "drift", &drift)
	transcript.Scan(t, d, "max-ids", &c.MaxIDs)
	transcript.Scan(t, d, "seed", &c.Seed)
	c.NoHedge = d.HasArg("no-hedge")
	c.Drift, c.steady = clock.Drift(drift), c.Seed == 0
	h, err := New(c)
	if err != nil {
		return err.Error()
	}
	if drift == 0 {
		h.config.Drift = 0 // round numbers are easier to read
	}
	*tr = conversation{
		h: h, clocks: clock.NewManual(clock.Instant{}),
		names: make(map[string]Lease), called: make(map[Lease]string), sent: make(map[uint64][]Lease),
		ttls: make(map[Lease]time.Duration),
	}
	return ""
}

func (tr *conversation) message(t *testing.T, d *datadriven.TestData) string {
	number, err := strconv.ParseUint(transcript.Word(d, 0), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if d.Cmd == "returned" {
		return tr.step(Returned{number})
	}
	answer := Answer{Outcome: map[string]Outcome{"ack": Acknowledged, "gone": Gone, "fail": Failed}[d.Cmd]}
	answer.Until = tr.until(t, d)
	leases, rest := tr.sent[number], d.CmdArgs[1:]
	if d.Cmd == "ack" && answer.Until == (clock.Instant{}) {
		answer.TTL, rest = transcript.Duration(t, transcript.Word(d, 1)), d.CmdArgs[2:]
	}
	var named []Lease
	for _, arg := range rest {
		if len(arg.Vals) == 0 {
			named = append(named, tr.names[arg.Key])
		}
	}
	if named != nil {
		leases = named
	}
	e := Renewed{Number: number}
	for _, l := range leases {
		answer.Lease = l
		e.Answers = append(e.Answers, answer)
	}
	return tr.step(e)
}

func (tr *conversation) runUntil(t *testing.T, d *datadriven.TestData) string {
	end := clock.Instant{}.Add(transcript.Duration(t, transcript.Word(d, 0)))
	delay := time.Duration(-1)
	transcript.Scan(t, d, "answer", &delay)
	type arrival struct {
		at     clock.Instant
		number uint64
	}
	var arrivals []arrival
	var lines []string
	step := func(e Event) {
		known := len(tr.sent)
		if out := tr.step(e); out != "" {
			lines = append(lines, fmt.Sprintf("%v:", tr.clocks.Now()))
			lines = append(lines, "  "+strings.ReplaceAll(out, "\n", "\n  "))
		}
		if delay >= 0 && len(tr.sent) > known {
			for n := known + 1; n <= len(tr.sent); n++ {
				arrivals = append(arrivals, arrival{tr.clocks.Now().Add(delay), uint64(n)})
			}
		}
	}
	for {
		next, answer := end, false
		if tr.wakeAt != nil && tr.wakeAt.Before(next) {
			next = *tr.wakeAt
		}
		if len(arrivals) > 0 && !next.Before(arrivals[0].at) {
			next, answer = arrivals[0].at, true
		}
		tr.clocks.Advance(max(0, tr.clocks.Now().Remaining(next)))
		switch {
		case answer:
			e := Renewed{Number: arrivals[0].number}
			for _, l := range tr.sent[e.Number] {
				e.Answers = append(e.Answers, Answer{Lease: l, TTL: tr.ttl(t, d)})
			}
			arrivals = arrivals[1:]
			step(e)
		case next == end:
			return strings.Join(lines, "\n")
		default:
			tr.wakeAt = nil
			step(Wake{})
		}
	}
}

// crowd has many leases, with a store that acknowledges everything at once for the TTL it was asked for.
func (tr *conversation) crowd(t *testing.T, d *datadriven.TestData) string {
	before := tr.h.Stats()
	run := func(e Event) {
		events := []Event{e}
		for len(events) > 0 {
			for _, effect := range tr.h.Step(tr.clocks.Now(), events[0]) {
				switch f := effect.(type) {
				case Renew:
					answers := Renewed{Number: f.Number}
					for _, l := range f.Leases {
						answers.Answers = append(answers.Answers, Answer{Lease: l, TTL: tr.ttls[l]})
					}
					events = append(events, answers)
				case WakeAt:
					tr.wakeAt = &f.At
				}
			}
			events = events[1:]
		}
	}
	until := func(end clock.Instant) {
		for tr.wakeAt != nil && !end.Before(*tr.wakeAt) {
			tr.clocks.Advance(max(0, tr.clocks.Now().Remaining(*tr.wakeAt)))
			tr.wakeAt = nil
			run(Wake{})
		}
		tr.clocks.Advance(max(0, tr.clocks.Now().Remaining(end)))
	}
	if d.Cmd == "count" {
		until(tr.clocks.Now().Add(transcript.Duration(t, transcript.Word(d, 0))))
	} else {
		n, err := strconv.Atoi(transcript.Word(d, 0))
		if err != nil {
			t.Fatal(err)
		}
		var over time.Duration
		transcript.Scan(t, d, "over", &over)
		ttl := transcript.Duration(t, transcript.Word(d, 1))
		for range n {
			l, err := tr.h.Claim(tr.clocks.Now(), ttl)
			if err != nil {
				return err.Error()
			}
			tr.ttls[l] = ttl
			run(Granted{Lease: l, TTL: ttl})
			until(tr.clocks.Now().Add(over / time.Duration(n)))
		}
	}
	after := tr.h.Stats()
	return fmt.Sprintf("%d held, %d lost; %d messages with %d renewals", after.Held, after.Lost,
		after.Messages-before.Messages, after.Renewals-before.Renewals)
}

// step feeds an event and says what came of it.
func (tr *conversation) step(e Event) string {
	var lines []string
	for _, effect := range tr.h.Step(tr.clocks.Now(), e) {
		switch f := effect.(type) {
		case Renew:
			tr.sent[f.Number] = f.Leases
			lines = append(lines, fmt.Sprintf("%s %d: %s", map[bool]string{false: "renew", true: "hedge"}[f.Hedge], f.Number, tr.list(f.Leases)))
		case Abandon:
			lines = append(lines, fmt.Sprintf("abandon %d", f.Number))
		case Held:
			lines = append(lines, fmt.Sprintf("%s is held until %v", tr.called[f.Lease], f.Deadline))
		case Doubt:
			lines = append(lines, tr.called[f.Lease]+" is in doubt")
		case Assured:
			lines = append(lines, tr.called[f.Lease]+" is assured again")
		case Lost:
			lines = append(lines, fmt.Sprintf("%s is lost: %v", tr.called[f.Lease], f.Cause))
		case Resolve:
			lines = append(lines, fmt.Sprintf("%s %s again", map[bool]string{false: "claim", true: "release"}[f.Release], tr.called[f.Lease]))
		case GaveUp:
			lines = append(lines, fmt.Sprintf("gave up releasing %s", tr.called[f.Lease]))
		case WakeAt:
			tr.wakeAt = &f.At
		}
	}
	return strings.Join(lines, "\n")
}

// list names the leases of a message, or counts them if they are many.
func (tr *conversation) list(leases []Lease) string {
	if len(leases) > 12 {
		return fmt.Sprintf("%d leases", len(leases))
	}
	var names []string
	for _, l := range leases {
		names = append(names, tr.called[l])
	}
	return strings.Join(names, " ")
}

func (tr *conversation) show(d *datadriven.TestData) string {
	l, now := tr.lease(d), tr.clocks.Now()
	deadline, ok := tr.h.Deadline(l)
	switch {
	case tr.h.Valid(now, l):
		return fmt.Sprintf("valid until %v, for %v", deadline, tr.h.Remaining(now, l))
	case ok:
		return fmt.Sprintf("not valid, in line until %v", deadline)
	}
	return "not valid"
}

func (tr *conversation) lease(d *datadriven.TestData) Lease {
	l, ok := tr.names[transcript.Word(d, 0)]
	if !ok {
		panic("no lease is called " + transcript.Word(d, 0))
	}
	return l
}

// ttl is the last plain argument, if that is a duration.
func (tr *conversation) ttl(t *testing.T, d *datadriven.TestData) time.Duration {
	for i := len(d.CmdArgs) - 1; i >= 0; i-- {
		if len(d.CmdArgs[i].Vals) == 0 {
			if ttl, err := time.ParseDuration(d.CmdArgs[i].Key); err == nil && d.Cmd != "run-until" {
				return ttl
			}
		}
	}
	ttl := 10 * time.Second
	transcript.Scan(t, d, "ttl", &ttl)
	return ttl
}

func (tr *conversation) until(t *testing.T, d *datadriven.TestData) clock.Instant {
	var until time.Duration
	if transcript.Scan(t, d, "until", &until); until == 0 {
		return clock.Instant{}
	}
	return clock.Instant{}.Add(until)
}
