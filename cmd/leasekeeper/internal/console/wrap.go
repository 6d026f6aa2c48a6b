package console

import (
	"strings"

	"github.com/leasekeeper/leasekeeper/backend"
)

// WrapText breaks a text between words into lines of at most most columns of a terminal. It escapes control characters, and
// breaks a word that is longer than a line. It returns at least one line.
func WrapText(text string, most int) []string {
	lines := []string{""}
	last := func() *string { return &lines[len(lines)-1] }
	for _, word := range strings.Fields(backend.Printable(text)) {
		for rest := word; columnsOf(rest) > most; word = rest {
			if *last() != "" {
				lines = append(lines, "")
			}
			*last(), rest = splitAt(rest, most)
			lines = append(lines, "")
		}
		switch {
		case *last() == "":
			*last() = word
		case columnsOf(*last())+1+columnsOf(word) <= most:
			*last() += " " + word
		default:
			lines = append(lines, word)
		}
	}
	return lines
}

// splitAt returns the letters of a text that fit into most columns, at least one letter, and the letters after them.
func splitAt(text string, most int) (fitting, rest string) {
	columns := 0
	for i, r := range text {
		if columns += columnsOfRune(r); columns > most && i > 0 {
			return text[:i], text[i:]
		}
	}
	return text, ""
}
