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

// write prints a line for each row: name, unit, for each target the median of its rounds and, but for the
// references, that divided by theirs, and the goal.
func (t *table) write(w io.Writer) error {
	head := []string{"", "unit"}
	for _, name := range t.targets {
		head = append(head, name)
		for _, base := range t.bases(name) {
			head = append(head, "/ "+base)
		}
	}
	lines := [][]string{append(head, "goal")}
	scenario := ""
	for _, r := range t.rows {
		if r.figure.name != "" && r.scenario != scenario {
			lines = append(lines, []string{r.scenario})
		}
		scenario = r.scenario
		lines = append(lines, t.line(r))
	}
	return writeAligned(w, lines)
}

// bases are what a target is divided by, each in a column of its own.
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

// writeAligned prints lines of cells: the first two of a line to the left, all others to the right. A line
// with one cell has no part in how wide the columns are.
func writeAligned(w io.Writer, lines [][]string) error {
	var widths []int
	for _, line := range lines {
		for i, c := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if len(line) > 1 {
				widths[i] = max(widths[i], utf8.RuneCountInString(c))
			}
		}
	}
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
