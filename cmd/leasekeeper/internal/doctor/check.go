package doctor

import (
	"fmt"
	"strings"
	"time"
)

// Verdict is the result of one check, or of all.
type Verdict string

// The verdicts, from good to bad. NotChecked is neither.
const (
	OK         Verdict = "ok"
	Warn       Verdict = "warn"
	Fail       Verdict = "fail"
	NotChecked Verdict = "not checked"
)

// Check is one line of the report. Its JSON is part of the interface of the command.
type Check struct {
	Verdict Verdict `json:"verdict"`
	Name    string  `json:"check"`
	Found   string  `json:"found"`         // what was measured, or why it was not
	Fix     string  `json:"fix,omitempty"` // what to do; empty unless the verdict is warn or fail
}

func good(name, format string, args ...any) Check {
	return Check{Verdict: OK, Name: name, Found: fmt.Sprintf(format, args...)}
}

func skipped(name, format string, args ...any) Check {
	return Check{Verdict: NotChecked, Name: name, Found: fmt.Sprintf(format, args...)}
}

// bad returns a check with the verdict warn or fail. found is complete; fix is formatted.
func bad(v Verdict, name, found, fix string, args ...any) Check {
	return Check{Verdict: v, Name: name, Found: found, Fix: fmt.Sprintf(fix, args...)}
}

// worst returns the verdict on all checks: fail before warn before ok.
func worst(checks []Check) Verdict {
	all := OK
	for _, c := range checks {
		switch {
		case c.Verdict == Fail:
			return Fail
		case c.Verdict == Warn:
			all = Warn
		}
	}
	return all
}

// brief formats a duration with about three digits.
func brief(d time.Duration) string {
	switch size := d.Abs(); {
	case size >= 100*time.Second:
		return d.Round(time.Second).String()
	case size >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case size >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case size >= 100*time.Microsecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(100 * time.Nanosecond).String()
}

// listed joins texts for a sentence. It shows at most five of them.
func listed(all []string) string {
	const most = 5
	if len(all) > most {
		return strings.Join(all[:most], ", ") + fmt.Sprintf(" and %d more", len(all)-most)
	}
	return strings.Join(all, ", ")
}
