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
	tone    func(row []string, column int) Tone
}

// Shorten lets a table that is too wide for the terminal shorten the text in these columns, counted from 0, the longest
// first. The other columns keep their text.
func Shorten(columns ...int) Look {
	return func(l *layout) { l.shorten = append(l.shorten, columns...) }
}

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
		blank := 0 // spaces before the next text
		for j, cell := range row {
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
	return text.String()
}

// fit makes the widest columns that may be shortened narrower, until a line has at most most columns or all are as narrow as
// they may be.
func (l *layout) fit(widths []int, most int) {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for excess := total - most; most > 0 && excess > 0; excess-- {
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
