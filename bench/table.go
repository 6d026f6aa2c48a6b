package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// table holds every round of every figure, by row and target.
type table struct {
	targets   []string
	reference string // what the others are divided by
	second    string // what they are divided by too; may be empty
	rows      []*row
	// nameWidth is the least width of the first column where rows are printed one by one.
	nameWidth int
}

type row struct {
	scenario string
	figure   figure // without a value
	values   map[string][]float64
}

// add notes a figure. Rows are in the order in which they were first seen.
func (t *table) add(scenario, target string, f figure) {
	value := f.value
	f.value = 0
	for _, r := range t.rows {
		if r.scenario == scenario && r.figure == f {
			r.values[target] = append(r.values[target], value)
			return
		}
	}
	t.rows = append(t.rows, &row{scenario, f, map[string][]float64{target: {value}}})
}

// head is the line above all rows: name, unit, for each target its name and, but for the references, a column in
// which it is divided by theirs, and the goal.
func (t *table) head() []string {
	head := []string{"", "unit"}
	for _, name := range t.targets {
		head = append(head, name)
		for _, base := range t.bases(name) {
			head = append(head, "/ "+base)
		}
	}
	return append(head, "goal")
}

// linesOf returns the lines of one scenario, below its name if it has several.
func (t *table) linesOf(scenario string) (lines [][]string) {
	for _, r := range t.rows {
		if r.scenario != scenario {
			continue
		}
		if r.figure.name != "" && len(lines) == 0 {
			lines = append(lines, []string{r.scenario})
		}
		lines = append(lines, t.line(r))
	}
	return lines
}

// leastWidth is the least width of a column of numbers where rows are printed one by one.
const leastWidth = 9

// widths are those of the columns where rows are printed one by one, so that no later row is known.
func (t *table) widths() []int {
	widths := []int{t.nameWidth, len("kB/s")}
	for _, c := range t.head()[2:] {
		widths = append(widths, max(leastWidth, utf8.RuneCountInString(c)))
	}
	return widths
}

// bases are the targets that a target is divided by, each in a column of its own.
func (t *table) bases(target string) (bases []string) {
	for _, base := range []string{t.reference, t.second} {
		if target != t.reference && target != t.second && slices.Contains(t.targets, base) {
			bases = append(bases, base)
		}
	}
	return bases
}

func (t *table) line(r *row) []string {
	name := r.scenario
	if r.figure.name != "" {
		name = "  " + r.figure.name
	}
	line := []string{name, r.figure.unit}
	for _, target := range t.targets {
		values := r.values[target]
		line = append(line, cell(values))
		for _, base := range t.bases(target) {
			line = append(line, ratio(values, r.values[base]))
		}
	}
	return append(line, r.figure.goal)
}

const noValue = "-"

func cell(values []float64) string {
	if len(values) == 0 {
		return noValue
	}
	return number(median(values))
}

func ratio(values, base []float64) string {
	if len(values) == 0 || len(base) == 0 || median(base) <= 0 {
		return noValue
	}
	switch q := median(values) / median(base); {
	case q >= 10 || q <= -10:
		return fmt.Sprintf("%.0fx", q)
	case q >= 1 || q <= -1:
		return fmt.Sprintf("%.1fx", q)
	case q >= 0.1 || q <= -0.1:
		return fmt.Sprintf("%.2fx", q)
	default:
		return fmt.Sprintf("%.3fx", q)
	}
}

// number shows three digits, or all before the point.
func number(v float64) string {
	switch size := max(v, -v); {
	case size >= 99.95:
		return thousands(v)
	case size >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
}

// thousands shows a whole number with its digits in groups of three.
func thousands(v float64) string {
	digits, sign := strconv.FormatFloat(v, 'f', 0, 64), ""
	if rest, ok := strings.CutPrefix(digits, "-"); ok {
		digits, sign = rest, "-"
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + " " + digits[i:]
	}
	return sign + digits
}

// writeAligned prints lines of cells: the first two of a line to the left, all others to the right. A longer cell
// shifts what follows it in its line.
func writeAligned(w io.Writer, widths []int, lines ...[]string) error {
	for _, line := range lines {
		var b strings.Builder
		for i, c := range line {
			fill := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(c)))
			switch {
			case i == 0:
				b.WriteString(c + fill)
			case i == 1:
				b.WriteString("  " + c + fill)
			default:
				b.WriteString("  " + fill + c)
			}
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(b.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}
