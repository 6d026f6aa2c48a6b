package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A side is one of the two builds.
type side struct {
	*target
	version string // a commit, or the hash of a program
}

// The names of the sides, in the order in which ratios are made.
const (
	oldSide = "old"
	newSide = "new"
)

// compare measures rows of two builds in rounds, and fails if the median ratio of a row is below the threshold.
func (b *bench) compare(ctx context.Context, out io.Writer, dir string) error {
	before, after, err := b.sides(ctx, dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%-12s %s\n%-12s %s\n", oldSide, before.version, newSide, after.version)
	rows, rounds := b.comparisons(), cmp.Or(b.settings.rounds, againstRounds)
	if b.quick {
		rounds = cmp.Or(b.settings.rounds, againstQuickRounds)
	}
	rec, err := b.newRecorder(out, &table{}, fmt.Sprintf("%s against %s", after.version, before.version))
	if err != nil {
		return err
	}
	c := &contest{bench: b, dir: dir, out: out, rec: rec, sides: map[string]side{oldSide: before, newSide: after},
		rounds: rounds, rows: rows, found: newScores(rows, rounds), took: map[int]time.Duration{}}
	if err := c.run(ctx); err != nil {
		return err
	}
	return c.verdict()
}

// sides finds or builds both programs.
func (b *bench) sides(ctx context.Context, dir string) (before, after side, err error) {
	before.target, after.target = oursAs(oldSide), oursAs(newSide)
	if before.version, err = b.findOld(ctx, dir, before.target); err != nil {
		return before, after, fmt.Errorf("-against: %w", err)
	}
	after.binary, after.version = b.built, b.version
	if b.built != "" {
		after.version, err = programVersion(b.built)
	}
	if err != nil {
		return before, after, err
	}
	return before, after, build(ctx, dir, []*target{before.target, after.target}, b.say)
}

func oursAs(name string) *target {
	for _, t := range targets() {
		if t.name == ours {
			t.name = name
			return t
		}
	}
	panic("bench: our server is no target")
}

// findOld takes the program that -against names, or prepares the tree of the commit to be built.
func (b *bench) findOld(ctx context.Context, dir string, old *target) (version string, err error) {
	if strings.ContainsRune(b.against, filepath.Separator) {
		if info, err := os.Stat(b.against); err == nil && info.Mode().IsRegular() {
			if old.binary, err = filepath.Abs(b.against); err != nil {
				return "", err
			}
			return programVersion(b.against)
		}
	}
	version, err = git("rev-parse", "--short=12", "--verify", "--quiet", b.against+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("%q is no commit of this repository and no program: %w", b.against, err)
	}
	tree := filepath.Join(dir, "tree")
	b.say.line("checking out %s", version)
	if _, err := git("worktree", "add", "--detach", tree, version); err != nil {
		return "", err
	}
	old.source = tree
	err = build(ctx, dir, []*target{old}, b.say)
	// The next target of the same number is another program.
	if err == nil {
		kept := filepath.Join(dir, "old-server")
		err = os.Rename(old.binary, kept)
		old.binary = kept
	}
	_, removed := git("worktree", "remove", "--force", tree)
	return version, errors.Join(err, removed)
}

// programVersion identifies a program by its content.
func programVersion(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	return filepath.Base(path) + " " + hex.EncodeToString(sum[:6]), nil
}

// A contest is a comparison that runs.
type contest struct {
	*bench
	dir    string
	out    io.Writer
	rec    *recorder // prints nothing; it keeps the measurements
	sides  map[string]side
	rounds int
	rows   []comparison
	found  *scores
	took   map[int]time.Duration // by row, what the last measurement of both sides took
}

// A contestStep is one row of one round, on both sides.
type contestStep struct {
	round, row int
	order      [2]string // of the sides
}

// schedule has every row once in each round. Both sides of a row are measured one after the other, and which is
// first alternates: a machine that becomes slower, or faster, favours neither.
func schedule(rounds, rows int) (list []contestStep) {
	for round := range rounds {
		for row := range rows {
			s := contestStep{round, row, [2]string{oldSide, newSide}}
			if (round+row)%2 == 1 {
				s.order = [2]string{newSide, oldSide}
			}
			list = append(list, s)
		}
	}
	return list
}

// timeLeft estimates how long steps take, from how long both sides of each row took last. A row that was not yet
// measured counts as the mean of the others. It is zero if nothing was measured.
func timeLeft(left []contestStep, took map[int]time.Duration) (total time.Duration) {
	if len(took) == 0 {
		return 0
	}
	var mean time.Duration
	for _, t := range took {
		mean += t / time.Duration(len(took))
	}
	for _, s := range left {
		if t, known := took[s.row]; known {
			total += t
		} else {
			total += mean
		}
	}
	return total
}

// run measures all steps, and prints the ratio of each.
func (c *contest) run(ctx context.Context) error {
	steps := schedule(c.rounds, len(c.rows))
	fmt.Fprintln(c.out)
	for i, s := range steps {
		row, began := c.rows[s.row], time.Now()
		pair, err := c.pair(ctx, s, c.progress(s, timeLeft(steps[i:], c.took)))
		if err != nil {
			return fmt.Errorf("round %d of %d, %s: %w", s.round+1, c.rounds, row.name, err)
		}
		if pair.measured {
			c.took[s.row] = time.Since(began)
		}
		ratio, err := ratioOf(pair.unit, pair.value[oldSide], pair.value[newSide])
		if err != nil {
			return fmt.Errorf("round %d of %d, %s: %w", s.round+1, c.rounds, row.name, err)
		}
		c.found.ratios[s.row][s.round] = ratio
		c.say.clear()
		fmt.Fprintf(c.out, "round %d of %d  %-42s %12s %12s %-4s %.3fx\n", s.round+1, c.rounds, row.name,
			number(pair.value[oldSide]), number(pair.value[newSide]), pair.unit, ratio)
	}
	return nil
}

func (c *contest) progress(s contestStep, left time.Duration) string {
	text := fmt.Sprintf("round %d of %d, row %d of %d: %s", s.round+1, c.rounds, s.row+1, len(c.rows), c.rows[s.row].name)
	if left > 0 {
		text += fmt.Sprintf(", %v left", left.Round(time.Minute/4))
	}
	return text
}

// A pair is the deciding figure of one row in one round.
type pair struct {
	unit     string
	value    map[string]float64 // by side
	measured bool               // now, not by an earlier run
}

// pair measures both sides, or takes them from the journal.
func (c *contest) pair(ctx context.Context, s contestStep, progress string) (pair, error) {
	row := c.rows[s.row]
	name := fmt.Sprintf("round %d of %d: %s", s.round+1, c.rounds, row.name)
	kept, found := c.rec.journal.row(name)
	if !found {
		kept = rowResult{Name: name, Began: time.Now().UTC()}
		for _, one := range s.order {
			if ctx.Err() != nil {
				return pair{}, context.Cause(ctx)
			}
			c.say.line("%s, %s", progress, one)
			value, err := c.once(ctx, c.dir, scenario{name: row.name, run: row.run}, c.sides[one].target)
			if err != nil {
				return pair{}, fmt.Errorf("%s: %w", one, err)
			}
			for _, f := range value {
				kept.Figures = append(kept.Figures, result{one, f.name, f.unit, f.goal, f.value})
			}
		}
		kept.Ended = time.Now().UTC()
		if err := c.rec.journal.keep(kept); err != nil {
			return pair{}, err
		}
	}
	p := pair{value: map[string]float64{}, measured: !found}
	for _, f := range kept.Figures {
		if f.Name == row.figure {
			p.unit, p.value[f.Target] = f.Unit, f.Value
		}
	}
	if len(p.value) != len(c.sides) {
		return p, fmt.Errorf("the figure %q was not measured on both sides", row.figure)
	}
	return p, nil
}

// ratioOf says how much better the new build is: above 1 is better, whatever the unit.
func ratioOf(unit string, before, after float64) (float64, error) {
	if before <= 0 || after <= 0 {
		return 0, fmt.Errorf("no ratio of %s to %s", number(after), number(before))
	}
	if higherIsBetter(unit) {
		return after / before, nil
	}
	return before / after, nil
}

// verdict prints every ratio and the medians.
func (c *contest) verdict() error {
	fmt.Fprintln(c.out, "\nRatio of the new build to the old one in each round; above 1 the new one is better:")
	fmt.Fprintln(c.out)
	if err := c.found.write(c.out, c.threshold); err != nil {
		return err
	}
	if err := c.rec.journal.finish(); err != nil {
		return err
	}
	return c.found.below(c.threshold)
}
