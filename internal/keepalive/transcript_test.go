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

// TestTranscripts runs the files in testdata. A file has commands to a Renewer; every command that is a Step prints the
// effects.
//
//	new                  a Renewer without drift or jitter, its clocks at zero; [drift=ppm] [max-ids=n] [no-hedge] [seed=n]
//	claim a 10s          make a handle named a; a later claim of a replaces it
//	queued a 10s         claim answered: it waits in the queue; [until=d]
//	granted a 10s        claim answered, or a queued claim was granted; [until=d]
//	refused a            claim answered: refused
//	unknown a            the outcome of the claim is unknown
//	ack 1 10s            message 1 is acknowledged for all its leases, or for those named; [until=d]
//	gone 1 a             message 1: the store answers that a has ended
//	fail 1 a             message 1: no answer for a
//	returned 1           no more answers for message 1
//	ended a, retire a, releasing a, released a, release-failed a
//	advance 3s           both clocks advance, and a Wake follows
//	suspend 3s           only the boot clock advances, and a Wake follows
//	slew raw=3s boot=2s  the clocks advance differently, and a Wake follows
//	run-until 10s        run every wake-up until then; [answer=d]: every message is acknowledged d later
//	crowd 10000 12s      claim that many leases; the store acknowledges at once; [over=d]: spread over d
//	count 60s            run for that long, acknowledging at once, and count the messages; [ttl=d]
//	show a               whether a is valid or queued, and until when
//	stats
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "ok", func(*testing.T, string) transcript.Play { return new(player).run })
}

type player struct {
	h      *Renewer
	clocks *clock.Manual
	names  map[string]Lease
	called map[Lease]string
	sent   map[uint64][]Lease
	ttls   map[Lease]time.Duration
	wakeAt *clock.Instant
}

func (tr *player) run(t *testing.T, d *datadriven.TestData) string {
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
	case "queued":
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
	case "retire":
		return tr.step(Retire{tr.lease(d)})
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
		return tr.manyLeases(t, d)
	case "show":
		return tr.show(d)
	case "stats":
		return strings.Trim(fmt.Sprintf("%+v", tr.h.Stats()), "{}")
	}
	t.Fatalf("unknown command %s", d.Cmd)
	return ""
}

func (tr *player) create(t *testing.T, d *datadriven.TestData) string {
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
		h.config.Drift = 0 // for round numbers
	}
	*tr = player{
		h: h, clocks: clock.NewManual(clock.Instant{}),
		names: make(map[string]Lease), called: make(map[Lease]string), sent: make(map[uint64][]Lease),
		ttls: make(map[Lease]time.Duration),
	}
	return ""
}

func (tr *player) message(t *testing.T, d *datadriven.TestData) string {
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

func (tr *player) runUntil(t *testing.T, d *datadriven.TestData) string {
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

// manyLeases runs a store that acknowledges everything at once with the claimed TTL, and counts the messages.
func (tr *player) manyLeases(t *testing.T, d *datadriven.TestData) string {
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

// step runs a Step and prints its effects.
func (tr *player) step(e Event) string {
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

// list prints the names of a message's leases, or their number if they are many.
func (tr *player) list(leases []Lease) string {
	if len(leases) > 12 {
		return fmt.Sprintf("%d leases", len(leases))
	}
	var names []string
	for _, l := range leases {
		names = append(names, tr.called[l])
	}
	return strings.Join(names, " ")
}

func (tr *player) show(d *datadriven.TestData) string {
	l, now := tr.lease(d), tr.clocks.Now()
	deadline, ok := tr.h.Deadline(l)
	switch {
	case tr.h.Valid(now, l):
		return fmt.Sprintf("valid until %v, for %v", deadline, tr.h.Remaining(now, l))
	case ok:
		return fmt.Sprintf("not valid, queued until %v", deadline)
	}
	return "not valid"
}

func (tr *player) lease(d *datadriven.TestData) Lease {
	l, ok := tr.names[transcript.Word(d, 0)]
	if !ok {
		panic("no lease is named " + transcript.Word(d, 0))
	}
	return l
}

// ttl returns the last plain argument that is a duration, else the argument ttl, else ten seconds.
func (tr *player) ttl(t *testing.T, d *datadriven.TestData) time.Duration {
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

func (tr *player) until(t *testing.T, d *datadriven.TestData) clock.Instant {
	var until time.Duration
	if transcript.Scan(t, d, "until", &until); until == 0 {
		return clock.Instant{}
	}
	return clock.Instant{}.Add(until)
}
