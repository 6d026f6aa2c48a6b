package doctor

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

func TestLinesHaveAtMostAHundredColumns(t *testing.T) {
	long := strings.Repeat("é", 250)
	for _, c := range []Check{
		good("clock source", "tsc"),
		bad(Fail, "certificate --peer-cert", strings.Repeat("many words here ", 30), "%s", strings.Repeat("do this and that ", 30)),
		bad(Warn, "store", "/"+long+"/x y", "chmod %s", long),
		skipped("store", "\x1b[31m %s", strings.Repeat("\x1b", 40)),
	} {
		text := c.lines()
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns {
				t.Errorf("%d columns: %q", n, line)
			}
		}
		if !strings.HasPrefix(text, string(c.Verdict)+" ") || (c.Fix != "") != strings.Contains(text, "\n             fix: ") {
			t.Errorf("the verdict or the fix is missing:\n%s", text)
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("not escaped: %q", text)
		}
	}
}

func TestWarningsAndFailuresHaveTones(t *testing.T) {
	r := Report{Checks: []Check{good("a", "x"), bad(Warn, "b", "x", "y"), bad(Fail, "c", "x", "fail y"), skipped("d", "x")}}
	for when, want := range map[string][]string{
		"always": {"ok  ", "\x1b[33mwarn\x1b[0m  ", "    ", "\x1b[31mfail\x1b[0m  ", "    ", "not checked  "},
		"never":  {"ok  ", "warn  ", "    ", "fail  ", "    ", "not checked  "},
	} {
		var color console.Color
		if err := color.Set(when); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := r.print(console.NewStream(&text, &color), false); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(text.String(), "\n")
		for i, begin := range want {
			if !strings.HasPrefix(lines[i], begin) || strings.Count(lines[i], "\x1b") != strings.Count(begin, "\x1b") {
				t.Errorf("%s: %q, want %q", when, lines[i], begin)
			}
		}
	}
}

func TestWorstVerdictCounts(t *testing.T) {
	fine, missing := Check{Verdict: OK}, Check{Verdict: NotChecked}
	warning, failure := Check{Verdict: Warn}, Check{Verdict: Fail}
	for _, c := range []struct {
		checks []Check
		want   Verdict
	}{
		{nil, OK}, {[]Check{fine, missing}, OK}, {[]Check{fine, warning, missing}, Warn}, {[]Check{failure, warning}, Fail}, {[]Check{warning, failure}, Fail},
	} {
		if got := worst(c.checks); got != c.want {
			t.Errorf("%v: %s", c.checks, got)
		}
	}
}

func TestSummaryCountsEachVerdict(t *testing.T) {
	r := Report{Checks: []Check{{Verdict: OK}, {Verdict: OK}, {Verdict: Warn}, {Verdict: Fail}, {Verdict: Fail}, {Verdict: NotChecked}}}
	if got := r.summary(); got != "6 checks: 2 ok, 1 warning, 2 failures, 1 not checked" {
		t.Error(got)
	}
}

func TestDurationsAreBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Nanosecond: "1.2µs", 123456 * time.Nanosecond: "120µs", 12345 * time.Microsecond: "12.3ms", 1234567 * time.Microsecond: "1.23s", 101 * time.Second: "1m41s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%d: %s", d, got)
		}
	}
}

// expect checks the verdict of a check, that a bad one says what to do, and that a good one does not.
func expect(t *testing.T, what string, c Check, want Verdict) {
	t.Helper()
	if c.Verdict != want || c.Name == "" || c.Found == "" {
		t.Errorf("%s: %+v, want %s", what, c, want)
	}
	if needs := want == Warn || want == Fail; needs != (c.Fix != "") {
		t.Errorf("%s: a fix with %s: %+v", what, want, c)
	}
}
