package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// Report is the JSON output of `doctor`.
type Report struct {
	Verdict Verdict `json:"verdict"`
	Checks  []Check `json:"checks"`
}

const (
	// columns is the greatest width of a line.
	columns = 100
	// The widths of the columns with the verdict and the name, and the space after each.
	verdictWidth, nameWidth, gap = 11, 20, 2
	foundColumn                  = verdictWidth + gap + nameWidth + gap
	fixColumn                    = verdictWidth + gap
)

// print prints the report as a table or as JSON.
func (r Report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return console.PrintJSON(w, r)
	}
	var text strings.Builder
	for _, c := range r.Checks {
		text.WriteString(c.lines())
	}
	text.WriteString("\n" + r.summary() + "\n")
	return console.PaintLines(w, text.String(), verdictTone)
}

// verdictTone returns the tone of the first word of a line.
func verdictTone(word string) console.Tone {
	return map[Verdict]console.Tone{Warn: console.Alert, Fail: console.Lost}[Verdict(word)]
}

// summary counts the verdicts.
func (r Report) summary() string {
	counts := make(map[Verdict]int)
	for _, c := range r.Checks {
		counts[c.Verdict]++
	}
	return fmt.Sprintf("%s: %d ok, %s, %s, %d not checked", console.Plural(len(r.Checks), "check", "checks"), counts[OK],
		console.Plural(counts[Warn], "warning", "warnings"), console.Plural(counts[Fail], "failure", "failures"), counts[NotChecked])
}

// lines returns the lines of one check: the verdict, the name and what was found in columns, and the fix below.
func (c Check) lines() string {
	var text strings.Builder
	head := fmt.Sprintf("%-*s%-*s", verdictWidth+gap, c.Verdict, nameWidth+gap, c.Name)
	for i, line := range console.WrapText(c.Found, columns-foundColumn) {
		if i > 0 {
			head = strings.Repeat(" ", foundColumn)
		}
		text.WriteString(strings.TrimRight(head+line, " ") + "\n")
	}
	if c.Fix == "" {
		return text.String()
	}
	for _, line := range console.WrapText("fix: "+c.Fix, columns-fixColumn) {
		text.WriteString(strings.Repeat(" ", fixColumn) + line + "\n")
	}
	return text.String()
}
