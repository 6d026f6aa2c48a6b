package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/clock"
)

// at returns the instant some seconds after the origin.
func at(seconds float64) clock.Instant {
	return clock.Instant{}.Add(time.Duration(seconds * float64(time.Second)))
}

// world is a run of the demo in which all facts hold: blue is paused from 3 on, and green holds the name from 6 on.
type world struct {
	tenures []*tenure
	writes  []write
	log     []logLine
	paused  bool
}

func newWorld() *world {
	first := logLine{Token: 2, Holder: "blue", Process: 7, Write: 1}
	next := logLine{Token: 5, Holder: "green", Process: 8, Write: 1}
	return &world{
		tenures: []*tenure{
			{token: 2, holder: "blue", from: at(1), stopped: at(3), over: at(5)},
			{token: 5, holder: "green", from: at(6), stopped: at(9), over: at(9)},
		},
		writes: []write{
			{line: first, at: at(2), accepted: true},
			{line: next, at: at(7), accepted: true},
			{line: logLine{Token: 2, Holder: "blue", Process: 7, Write: 2}, at: at(3), highest: 5},
		},
		log:    []logLine{first, next},
		paused: true,
	}
}

// broken returns the names of the facts that do not hold.
func (w *world) broken() string {
	var names []string
	for _, f := range judge(w.tenures, w.writes, w.log, w.paused) {
		if !f.holds {
			names = append(names, f.name)
		}
	}
	return strings.Join(names, ", ")
}

func TestFactsHoldInACorrectRun(t *testing.T) {
	w := newWorld()
	if got := w.broken(); got != "" {
		t.Errorf("broken: %s", got)
	}
	values := make(map[string]string)
	for _, f := range judge(w.tenures, w.writes, w.log, w.paused) {
		values[f.name] = f.value
	}
	for name, want := range map[string]string{
		"tokens strictly increase":      "2 < 5",
		"two holders at once":           "never; the nearest two were 1.000 s apart",
		"refused writes":                "1: blue wrote with token 2 after token 5",
		"longest time without a holder": "3.000 s (the TTL is 3s)",
	} {
		if values[name] != want {
			t.Errorf("%s: got %q, want %q", name, values[name], want)
		}
	}
}

func TestEachFactCanBreak(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"a token is used twice":           {func(w *world) { w.tenures[0].token = 5 }, "tokens strictly increase, accepted writes"},
		"only one tenure":                 {func(w *world) { w.tenures = w.tenures[:1] }, "tokens strictly increase, accepted writes"},
		"the next tenure began too early": {func(w *world) { w.tenures[1].from = at(4.9) }, "two holders at once"},
		"a check came before its tenure":  {func(w *world) { w.writes[1].at = at(5.5) }, "accepted writes"},
		"a check came after its tenure":   {func(w *world) { w.writes[0].at = at(5.1) }, "accepted writes"},
		"no write was accepted":           {func(w *world) { w.writes = w.writes[2:] }, "accepted writes"},
		"a write is lost":                 {func(w *world) { w.log = w.log[:1] }, "lines in the file"},
		"an old token came later":         {func(w *world) { w.log = append(w.log, logLine{Token: 4}) }, "lines in the file"},
		"a refused write is in the file":  {func(w *world) { w.log = append(w.log[:1:1], w.writes[2].line, w.log[1]) }, "refused writes"},
		"a write was refused wrongly":     {func(w *world) { w.writes[2].highest = 2 }, "refused writes"},
		"the paused worker was accepted":  {func(w *world) { w.writes = w.writes[:2] }, "refused writes"},
	} {
		w := newWorld()
		c.spoil(w)
		if got := w.broken(); got != c.want {
			t.Errorf("%s: broken is %q, want %q", name, got, c.want)
		}
	}
}

func TestNoRefusalIsNeededWithoutAPause(t *testing.T) {
	w := newWorld()
	w.writes, w.paused = w.writes[:2], false
	if got := w.broken(); got != "" {
		t.Errorf("broken: %s", got)
	}
}

// A worker that is paused or killed may act until its deadline, and one that finds the end of its lease late acted until
// its deadline only.
func TestRightToActEndsAtTheDeadline(t *testing.T) {
	r := newRecord()
	hold := func(token leasekeeper.Token, from, until float64) {
		r.add("blue", 7, report{Kind: reportHolds, At: at(from), Token: token, Until: at(until)})
	}
	hold(1, 1, 4)
	r.add("blue", 7, report{Kind: reportWrote, At: at(2), Checked: at(2), Token: 1, Until: at(5)})
	r.stop(1, at(3), "killed")
	hold(2, 6, 9)
	r.add("blue", 7, report{Kind: reportEnded, At: at(9.5), Token: 2})
	hold(3, 10, 13)
	r.add("blue", 7, report{Kind: reportReleased, At: at(11), Token: 3, Until: at(13)})
	hold(4, 12, 15)
	r.finish(at(14))
	hold(5, 16, 19) // the record is closed
	for i, want := range []struct{ stopped, over float64 }{{3, 5}, {9.5, 9}, {11, 11}, {14, 14}} {
		if got := r.tenures[i]; got.stopped != at(want.stopped) || got.over != at(want.over) {
			t.Errorf("token %d: stopped at %v, its right ended at %v; want %v", got.token, got.stopped, got.over, want)
		}
	}
	if len(r.tenures) != 4 {
		t.Errorf("%d tenures, want 4", len(r.tenures))
	}
}

func TestLogIsParsedAsItWasWritten(t *testing.T) {
	want := logLine{Token: 1<<64 - 1, Holder: "blue", Process: 4711, Write: 3}
	got, err := parseLog([]byte(want.String() + "\n" + want.String() + "\n"))
	if err != nil || len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parseLog([]byte("2 blue\n")); err == nil {
		t.Error("half a line was accepted")
	}
}
