package webconsole

import (
	"go/parser"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/webconsole/survey"
)

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int]string{0: "0", 9999: "9999", 10000: "10\u202f000", 1234567: "1\u202f234\u202f567", -12345: "−12\u202f345"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.2", 9.94: "9.9", 10: "10", 99.6: "100", 12345.6: "12\u202f346"} {
		if got := rate(v); got != want {
			t.Errorf("%v per second is %q", v, got)
		}
	}
	if got := whole(7); got != "7" {
		t.Errorf("7 is %q", got)
	}
	for d, want := range map[time.Duration]string{
		0: "0 s", time.Millisecond: "1 s", 119 * time.Second: "119 s", 120 * time.Second: "2 min", 2*time.Hour - time.Second: "119 min", 2 * time.Hour: "2 h", 48 * time.Hour: "2 d",
	} {
		if got := leftInWords(d); got != want {
			t.Errorf("%v is %q", d, got)
		}
	}
}

// A figure that nobody has observed leaves a gap in the line, and is a dash.
func TestPlots(t *testing.T) {
	for _, test := range []struct {
		values          []float64
		path, now, most string
	}{
		{nil, "M0 0", dash, dash},
		{[]float64{survey.Missing, survey.Missing}, "M0 0", dash, dash},
		{[]float64{0, 0}, "M0 47h180L360 47", "0", "0"},
		{[]float64{1, 2, survey.Missing, 4}, "M0 35.5h90L180 24M270 1h90", "4", "4"},
		{[]float64{4, survey.Missing}, "M0 1h180", dash, "4"},
	} {
		c := make(cells)
		c.plot("p", test.values, whole)
		if c["p.line"].Line != test.path || c["p.now"].Text != test.now || c["p.most"].Text != test.most {
			t.Errorf("%v: %v", test.values, c)
		}
	}
	if !survey.IsMissing(math.NaN()) {
		t.Error("a missing figure is not told apart")
	}
}

// What one copies from a page is one word of a shell, and Go code, whatever a name contains.
func TestTextsToCopy(t *testing.T) {
	for _, name := range []string{"jobs/nightly", "it's", "a b", "$(reboot)", "`x`", `"\n`, "ü", "-x"} {
		out, err := exec.Command("sh", "-c", "printf %s "+shellQuoted(name)).Output()
		if err != nil || string(out) != name {
			t.Errorf("%q is %s for a shell, which reads %q (%v)", name, shellQuoted(name), out, err)
		}
		if _, err := parser.ParseExpr("func() error {\n" + snippet("sqlite:"+name, name) + "\n}"); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestCardsKeepTheirLines(t *testing.T) {
	if got := printableLines("one\n\x1b[31mtwo\n"); got != "one\n\\x1b[31mtwo\n" {
		t.Errorf("%q", got)
	}
}

// The picture of tenures shows each, however short, and stays within its frame.
func TestTimeline(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	c := make(cells)
	timeline(c, []backend.Tenure{
		{From: ago(10 * time.Second)},
		{From: ago(50 * time.Second), To: ago(50 * time.Second), Why: backend.Expired},
		{From: ago(100 * time.Second), To: ago(60 * time.Second), Why: backend.Released},
		{To: ago(200 * time.Second)}, // its beginning is unknown
	}, now)
	for key, want := range map[string]string{
		"timeline.live": "M900 0h100v24h-100z", "timeline.warn": "M500 0h2v24h-2z", "timeline.past": "M0 0h400v24h-400z",
	} {
		if c[key].Line != want {
			t.Errorf("%s: %s", key, c[key].Line)
		}
	}
	if c["timeline.from"].Text != "2026-11-27 11:58:20" {
		t.Errorf("it begins at %q", c["timeline.from"].Text)
	}
	timeline(c, nil, now)
	if c["timeline.live"].Line != "M0 0" || !strings.Contains(c["timeline.from"].Text, dash) {
		t.Errorf("of nothing: %v", c)
	}
}
