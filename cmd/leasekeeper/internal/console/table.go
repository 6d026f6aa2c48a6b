package console

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/width"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	gap      = 2 // spaces between columns
	shortest = 8 // columns that remain of a cell that is shortened
	ellipsis = "…"
)

// Look says how a table looks on a terminal. Elsewhere a table has all text, and colours only with --color=always.
type Look func(*layout)

type layout struct {
	shorten []int
	wrap    bool
	tone    func(row []string, column int) Tone
}

// Shorten lets a table that is too wide for the terminal shorten the text in these columns, counted from 0, the longest
// first. The other columns keep their text.
func Shorten(columns ...int) Look {
	return func(l *layout) { l.shorten = append(l.shorten, columns...) }
}

// Wrap lets a table that is too wide for the terminal break the text in its last column between words, into several lines.
func Wrap() Look { return func(l *layout) { l.wrap = true } }

// Paint gives cells a tone. row has the text of the cells.
func Paint(tone func(row []string, column int) Tone) Look {
	return func(l *layout) { l.tone = tone }
}

// PrintTable prints rows of cells in aligned columns. It escapes control characters.
func PrintTable(w io.Writer, rows [][]string, looks ...Look) error {
	var l layout
	for _, apply := range looks {
		apply(&l)
	}
	s := streamOf(w)
	_, err := io.WriteString(w, l.text(rows, s.width(), s.paints()))
	return err
}

// text returns the lines of a table. most is how many columns a line should have at most, 0 for no limit.
func (l *layout) text(rows [][]string, most int, paints bool) string {
	printable := make([][]string, len(rows))
	var widths []int
	for i, row := range rows {
		for j, cell := range row {
			cell = backend.Printable(cell)
			printable[i] = append(printable[i], cell)
			if j == len(widths) {
				widths = append(widths, 0)
			}
			widths[j] = max(widths[j], columnsOf(cell))
		}
	}
	l.fit(widths, most)
	var text strings.Builder
	for i, row := range printable {
		for _, line := range l.lines(row, widths) {
			blank := 0 // spaces before the next text
			for j, cell := range line {
				cell = cut(cell, widths[j])
				if cell != "" {
					text.WriteString(strings.Repeat(" ", blank))
					blank = 0
				}
				blank += widths[j] - columnsOf(cell) + gap
				if paints && l.tone != nil {
					cell = l.tone(rows[i], j).in(cell)
				}
				text.WriteString(cell)
			}
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// lines returns the lines of a row. Only a last cell that is broken has more than one.
func (l *layout) lines(row []string, widths []int) [][]string {
	last := len(widths) - 1
	if !l.wrap || len(row) <= last || columnsOf(row[last]) <= widths[last] {
		return [][]string{row}
	}
	var lines [][]string
	for _, part := range WrapText(row[last], widths[last]) {
		line := make([]string, len(row))
		if len(lines) == 0 {
			copy(line, row)
		}
		line[last] = part
		lines = append(lines, line)
	}
	return lines
}

// fit makes the last column narrower if it may be broken, and then the widest columns that may be shortened, until a line has
// at most most columns or all are as narrow as they may be.
func (l *layout) fit(widths []int, most int) {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	excess := total - most
	if most <= 0 || excess <= 0 {
		return
	}
	if last := len(widths) - 1; l.wrap && widths[last] > shortest {
		given := min(excess, widths[last]-shortest)
		widths[last], excess = widths[last]-given, excess-given
	}
	for ; excess > 0; excess-- {
		widest := -1
		for _, column := range l.shorten {
			if column < len(widths) && widths[column] > shortest && (widest < 0 || widths[column] > widths[widest]) {
				widest = column
			}
		}
		if widest < 0 {
			return
		}
		widths[widest]--
	}
}

// cut returns text in at most most columns of a terminal. If something is missing, it ends in an ellipsis.
func cut(text string, most int) string {
	if columnsOf(text) <= most {
		return text
	}
	if most < 1 {
		return ""
	}
	runes := []rune(text)
	for columns := columnsOf(text); columns > most-1 && len(runes) > 0; {
		last := len(runes) - 1
		columns -= columnsOfRune(runes[last])
		runes = runes[:last]
	}
	return string(runes) + ellipsis
}

// columnsOf returns how many columns of a terminal a printable text takes.
func columnsOf(text string) int {
	columns := 0
	for _, r := range text {
		columns += columnsOfRune(r)
	}
	return columns
}

func columnsOfRune(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if k := width.LookupRune(r).Kind(); slices.Contains([]width.Kind{width.EastAsianWide, width.EastAsianFullwidth}, k) {
		return 2
	}
	return 1
}
