package main

import (
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestScheduleInterleavesBothSides(t *testing.T) {
	const rounds, rows = 7, 12
	list := schedule(rounds, rows)
	if len(list) != rounds*rows {
		t.Fatalf("%d steps, want %d", len(list), rounds*rows)
	}
	firsts := make(map[int][]string) // by row
	for i, s := range list {
		if s.round != i/rows || s.row != i%rows {
			t.Errorf("step %d is row %d of round %d", i, s.row, s.round)
		}
		if sorted := slices.Sorted(slices.Values(s.order[:])); !slices.Equal(sorted, []string{newSide, oldSide}) {
			t.Errorf("step %d measures %v", i, s.order)
		}
		firsts[s.row] = append(firsts[s.row], s.order[0])
	}
	for row, first := range firsts {
		for i := 1; i < len(first); i++ {
			if first[i] == first[i-1] {
				t.Errorf("row %d begins with %s in two rounds one after the other", row, first[i])
			}
		}
	}
}

func TestTimeLeftFollowsMeasuredRounds(t *testing.T) {
	left := schedule(2, 3)
	if got := timeLeft(left, nil); got != 0 {
		t.Errorf("before anything is measured it is %v", got)
	}
	took := map[int]time.Duration{0: 10 * time.Second, 2: 20 * time.Second}
	if got, want := timeLeft(left[3:], took), (10+15+20)*time.Second; got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestRatioGrowsWithImprovement(t *testing.T) {
	for _, test := range []struct {
		unit                string
		before, after, want float64
	}{{"1/s", 100, 90, 0.9}, {"1/s", 100, 110, 1.1}, {"ms", 1, 2, 0.5}, {"ms", 2, 1, 2}, {"B", 177, 177, 1}} {
		if got, err := ratioOf(test.unit, test.before, test.after); err != nil || math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
	}
	for _, values := range [][2]float64{{0, 1}, {1, 0}, {-1, -1}} {
		if got, err := ratioOf("1/s", values[0], values[1]); err == nil {
			t.Errorf("%v have the ratio %v", values, got)
		}
	}
}

func TestScoresBelowTheThreshold(t *testing.T) {
	s := &scores{names: []string{"gets", "puts"}, ratios: [][]float64{{0.5, 1.01, 1}, {0.96, 0.969, 1.2}}}
	if err := s.below(0.97); err == nil || !strings.Contains(err.Error(), "1 of 2 rows") || !strings.Contains(err.Error(), "puts (0.969)") || strings.Contains(err.Error(), "gets") {
		t.Errorf("the error is %v", err)
	}
	if err := s.below(0.969); err != nil {
		t.Errorf("at the threshold: %v", err)
	}
	var b strings.Builder
	must(t, s.write(&b, 0.97))
	want := `
            1      2      3  median
gets    0.500  1.010  1.000   1.000
puts    0.960  0.969  1.200   0.969  below 0.97
`
	if got := "\n" + b.String(); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestTwelveRowsAreCompared(t *testing.T) {
	b, err := configure([]string{"-against", "HEAD"})
	must(t, err)
	names := map[string]bool{}
	for _, c := range b.comparisons() {
		names[c.name] = true
	}
	if len(names) != 12 {
		t.Errorf("%d rows with different names, want 12", len(names))
	}
}

func TestUnknownOldBuildIsRefused(t *testing.T) {
	for _, against := range []string{"no-such-commit", "./no-such-program", "--all"} {
		b := &bench{settings: settings{against: against}}
		if version, err := b.findOld(t.Context(), t.TempDir(), oursAs(oldSide)); err == nil {
			t.Errorf("%q is taken as %s", against, version)
		}
	}
}

// TestComparisonExitsByTheThreshold compares our server with itself, quickly: at a threshold that nothing is below, and at one that
// everything is below.
func TestComparisonExitsByTheThreshold(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	binary, err := buildOnce()
	must(t, err)
	dir := t.TempDir()
	compare := func(args ...string) (string, error) {
		b, err := configure(append([]string{"-quick", "-against", binary, "-server", binary, "-dir", dir, "-results", filepath.Join(dir, "results.jsonl")}, args...))
		must(t, err)
		b.version = "0123456789ab"
		var out strings.Builder
		err = b.run(t.Context(), &out)
		return out.String(), err
	}
	out, err := compare("-threshold", "0.000001", "-run", "^(puts at 1 in flight|watch fan-out.*)$")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"round 1 of 2  puts at 1", "round 2 of 2  watch fan-out to 64", "median"} {
		if !strings.Contains(out, want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "\r") || strings.Contains(out, " left") {
		t.Errorf("progress is shown although this is no terminal:\n%q", out)
	}
	if out, err = compare("-threshold", "1000000", "-run", "^puts at 1 ", "-rounds", "1"); err == nil || !strings.Contains(err.Error(), "1 of 1 rows") || !strings.Contains(out, "below 1e+06") {
		t.Errorf("below the threshold: %v\n%s", err, out)
	}
}

// TestWorktreeOfACommit checks out a commit of this repository, and removes it again.
func TestWorktreeOfACommit(t *testing.T) {
	if err := exec.Command("git", "-C", "..", "rev-parse", "--verify", "HEAD").Run(); err != nil {
		t.Skip("not a clone of the repository: ", err)
	}
	b := &bench{settings: settings{against: "HEAD"}}
	old := oursAs(oldSide)
	old.pkg = "./no/such/package" // the worktree must be removed even if building fails
	dir := t.TempDir()
	if _, err := b.findOld(t.Context(), dir, old); err == nil || !strings.Contains(err.Error(), "no/such/package") {
		t.Errorf("building a package that is not there: %v", err)
	}
	if old.source != filepath.Join(dir, "tree") {
		t.Errorf("it is built in %s", old.source)
	}
	if list, err := git("worktree", "list"); err != nil || strings.Contains(list, dir) {
		t.Errorf("the worktree is left behind: %v\n%s", err, list)
	}
}
