package main

import (
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/required"
)

// Each program of -starts is run. The test asserts that there are numbers, never how large they are.
func TestStartsGiveNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs our command")
	}
	required.Program(t, "flock", "flock")
	b, err := configure([]string{"-starts", "-quick"})
	if err != nil {
		t.Fatal(err)
	}
	if b.built, err = buildOnce(); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := b.measureStarts(t.Context(), &out, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"p50", "p99", "time on a core, p50"} {
		_, rest, found := strings.Cut(out.String(), "  "+row+"  ")
		line, _, _ := strings.Cut(rest, "\n")
		values := strings.Fields(line)
		// The unit, the reference, three columns with a quotient each, and perhaps a goal.
		if !found || len(values) < 8 || strings.Contains(line, " "+noValue) {
			t.Errorf("row %s has no number for each program:\n%s", row, out.String())
		}
	}
}

func TestStartsCanLeaveOutPrograms(t *testing.T) {
	if _, err := configure([]string{"-starts", "-target", "no such program"}); err == nil {
		t.Error("a run without any program is accepted")
	}
}
