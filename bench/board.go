package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The markers stand on lines of their own. The board is between them; everything else in the page is written by hand.
const (
	boardBegin = "<!-- board: begin (written by `go run . -board` in bench) -->"
	boardEnd   = "<!-- board: end -->"
)

// clusterPrefix begins the names of rows of clusters in the board.
const clusterPrefix = "three members: "

// ours is the target that the goals are for.
const ours = "leasekeeper"

// A board is the table of docs/performance.md.
type board struct {
	date    string
	commit  string
	command string // below bench, without `go run .`
	facts   []fact // about the machine
	usage   string // of the machine, a sentence; may be empty
	table   *table
}

// writeBoard measures what the flags choose, and writes it into the page if nothing failed.
func (b *bench) writeBoard(ctx context.Context, out io.Writer, dir string, facts []fact) error {
	page, err := os.ReadFile(b.page)
	if err != nil {
		return err
	}
	if _, err := replaceBoard(string(page), ""); err != nil {
		return fmt.Errorf("%s: %w", b.page, err)
	}
	if strings.HasSuffix(b.version, dirtySuffix) && !b.quick {
		return fmt.Errorf("the board names a commit, but the working tree differs from it (%s): commit first", b.version)
	}
	var measured []*recorder
	if len(b.scenarios) > 0 && len(b.targets) > 0 {
		rec, err := b.runServers(ctx, out, dir)
		if err != nil {
			return err
		}
		measured = append(measured, rec)
	}
	if b.cluster && len(b.trials) > 0 && len(b.setups) > 0 {
		rec, err := b.runClusters(ctx, out, dir)
		if err != nil {
			return err
		}
		measured = append(measured, rec)
	}
	text := newBoard(measured, b.version, b.boardFlags(), facts).render()
	replaced, err := replaceBoard(string(page), text)
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.page, []byte(replaced), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nThe board is in %s.\n", b.page)
	return err
}

// boardFlags repeat the board.
func (b *bench) boardFlags() string {
	flags := strings.TrimPrefix(b.flagsOf("-board"), " ")
	if b.cluster {
		flags += " -cluster"
	}
	return flags
}

// newBoard puts the rows of all recorders into one table.
func newBoard(measured []*recorder, commit, command string, facts []fact) *board {
	w := &board{commit: commit, command: command, table: &table{reference: reference}}
	w.facts = slices.DeleteFunc(slices.Clone(facts), func(f fact) bool {
		return slices.Contains([]string{"date", "load", "leasekeeper"}, f.name)
	})
	var used usage
	var first, last string
	for i, rec := range measured {
		used = used.plus(rec.usage)
		if i == 0 {
			first = rec.began.UTC().Format(minuteFormat)
		}
		last = rec.ended.UTC().Format(minuteFormat)
		for _, r := range rec.table.rows {
			name := r.scenario
			if rec.table.second == alone {
				name = clusterPrefix + name
			}
			w.table.rows = append(w.table.rows, &row{name, r.figure, r.values})
		}
		for _, target := range rec.table.targets {
			if !slices.Contains(w.table.targets, target) {
				w.table.targets = append(w.table.targets, target)
			}
		}
	}
	w.date = last
	if day := len("2006-01-02"); first[:day] != last[:day] {
		w.date = first[:day] + " to " + last
	}
	w.usage = used.String()
	return w
}

// render returns the board as Markdown.
func (w *board) render() string {
	var b strings.Builder
	command := "cd bench && go run . " + w.command
	fmt.Fprintf(&b, "Measured on %s at commit `%s` by `%s`.\n\n", w.date, w.commit, command)
	for _, f := range w.facts {
		fmt.Fprintf(&b, "- %s: %s\n", f.name, f.value)
	}
	if w.usage != "" {
		fmt.Fprintf(&b, "\n%s\n", w.usage)
	}
	b.WriteByte('\n')
	w.writeTable(&b)
	return b.String()
}

// writeTable writes the table: our figures and etcd's, the limits, and the goals.
func (w *board) writeTable(b *strings.Builder) {
	columns := slices.DeleteFunc(slices.Clone(w.table.targets), func(name string) bool { return name == ours || name == reference })
	head := append([]string{"row", "unit", ours, reference, "/ " + reference}, columns...)
	lines := [][]string{append(head, "goal", "reached")}
	scenario := ""
	for _, r := range w.table.rows {
		name := r.scenario
		if r.figure.name != "" {
			name = r.figure.name
			if r.scenario != scenario {
				lines = append(lines, append([]string{"**" + r.scenario + "**"}, make([]string, len(head)+1)...))
			}
		}
		scenario = r.scenario
		line := []string{name, r.figure.unit, cell(r.values[ours]), cell(r.values[reference]), ratio(r.values[ours], r.values[reference])}
		for _, name := range columns {
			line = append(line, cell(r.values[name]))
		}
		lines = append(lines, append(line, r.figure.goal, reached(r)))
	}
	writeMarkdown(b, lines)
}

// reached says whether our figure reaches the goal; it is empty if there is no goal, or none that is a number.
func reached(r *row) string {
	goal, ratio := strings.CutSuffix(strings.ReplaceAll(r.figure.goal, " ", ""), "x")
	want, err := strconv.ParseFloat(goal, 64)
	values, base := r.values[ours], r.values[reference]
	if err != nil || len(values) == 0 || ratio && len(base) == 0 {
		return ""
	}
	got, err := strconv.ParseFloat(strings.ReplaceAll(number(median(values)), " ", ""), 64) // as it is shown
	if ratio {
		got = median(values) / median(base)
	}
	if err == nil && (higherIsBetter(r.figure.unit) && got >= want || !higherIsBetter(r.figure.unit) && got <= want) {
		return "yes"
	}
	return "no"
}

// higherIsBetter is so for rates. Everything else is a time or a size.
func higherIsBetter(unit string) bool { return unit == "1/s" }

// writeMarkdown writes lines of cells as a table that can be read without being rendered, too.
func writeMarkdown(b *strings.Builder, lines [][]string) {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, c := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(c), len("--:"))
		}
	}
	for i, line := range lines {
		for k, c := range line {
			fill := strings.Repeat(" ", widths[k]-utf8.RuneCountInString(c))
			if k < 2 {
				b.WriteString("| " + c + fill + " ")
			} else {
				b.WriteString("| " + fill + c + " ")
			}
		}
		b.WriteString("|\n")
		if i > 0 {
			continue
		}
		for k, width := range widths {
			if k < 2 {
				b.WriteString("|-" + strings.Repeat("-", width) + "-")
			} else {
				b.WriteString("|-" + strings.Repeat("-", width) + ":")
			}
		}
		b.WriteString("|\n")
	}
}

// errMarkers says that a page has no place for the board.
var errMarkers = errors.New("the page must have each of these lines once, in this order:\n" + boardBegin + "\n" + boardEnd)

// replaceBoard puts a board between the markers of a page.
func replaceBoard(page, text string) (string, error) {
	if strings.Count(page, boardBegin+"\n") != 1 || strings.Count(page, boardEnd) != 1 {
		return "", errMarkers
	}
	before, rest, _ := strings.Cut(page, boardBegin+"\n")
	_, after, found := strings.Cut(rest, boardEnd)
	if !found {
		return "", errMarkers
	}
	return before + boardBegin + "\n\n" + strings.TrimSpace(text) + "\n\n" + boardEnd + after, nil
}
