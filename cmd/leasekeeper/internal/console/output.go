package console

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	Table = "table"
	JSON  = "json"
)

// All output of commands goes through the functions of this file, which escape what a terminal would obey. The text
// comes from other holders, from databases and from servers. A test refuses fmt.Fprint in the other files.

// PrintLine prints one line. The text is escaped, so it does not end the line.
func PrintLine(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(w, backend.Printable(fmt.Sprintf(format, args...)))
	return err
}

// Warn prints one line about what a command met.
func Warn(stderr io.Writer, format string, args ...any) {
	PrintLine(stderr, "leasekeeper: "+format, args...) // there is nobody left to tell
}

// OverwriteLine replaces the line of a terminal by text, and the first width columns at least.
func OverwriteLine(w io.Writer, width int, text string) {
	fmt.Fprintf(w, "\r%-*s", width, backend.Printable(text))
}

// ClearLine removes what overwriteLine wrote.
func ClearLine(w io.Writer, width int) { fmt.Fprintf(w, "\r%-*s\r", width, "") }

// PrintLines prints text of several lines, which keeps its newlines and tabs.
func PrintLines(w io.Writer, text string) error {
	var printable strings.Builder
	for text != "" {
		i := strings.IndexAny(text, "\n\t") + 1
		if i == 0 {
			printable.WriteString(backend.Printable(text))
			break
		}
		printable.WriteString(backend.Printable(text[:i-1]))
		printable.WriteByte(text[i-1])
		text = text[i:]
	}
	_, err := io.WriteString(w, printable.String())
	return err
}

// PrintJSON prints a value for programs. Field names are part of the interface: they are added, never
// renamed.
func PrintJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// PrintJSONLine prints a value for programs that read line by line.
func PrintJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	encoder := json.NewEncoder(jsonEscaper{w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder.Encode(v)
}

// EscapedJSON returns a writer that passes on JSON as printJSON prints it.
func EscapedJSON(to io.Writer) io.Writer { return jsonEscaper{to} }

// jsonEscaper passes on JSON. Package encoding/json leaves some control characters as they are: those of two bytes,
// DEL, and those that change the direction of text. Outside of its strings JSON has no such characters.
type jsonEscaper struct{ to io.Writer }

// Write implements [io.Writer]. It is called with whole values.
func (e jsonEscaper) Write(text []byte) (int, error) {
	escaped := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case r == '\n' || unicode.IsPrint(r):
			escaped = utf8.AppendRune(escaped, r)
		case high == unicode.ReplacementChar:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		}
	}
	if _, err := e.to.Write(escaped); err != nil {
		return 0, err
	}
	return len(text), nil
}

// PrintTable prints rows of cells in aligned columns.
func PrintTable(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				io.WriteString(table, "\t") // Flush returns the error
			}
			io.WriteString(table, backend.Printable(cell))
		}
		io.WriteString(table, "\n")
	}
	return table.Flush()
}

// Readable shows a key's bytes as text. What does not print, and the backslash, is written as in a Go
// string, so that two keys never look the same.
func Readable(key []byte) string {
	quoted := strconv.Quote(string(key))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// BytesInWords shows a size to a person.
func BytesInWords(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	value, names := float64(n), "KMGTPE"
	i := -1
	for value >= unit && i < len(names)-1 {
		value /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", value, names[i])
}

func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
