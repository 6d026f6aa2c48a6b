package main

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
	outputTable = "table"
	outputJSON  = "json"
)

// All output of commands goes through the functions of this file, which escape what a terminal would obey. The text
// comes from other holders, from databases and from servers. A test refuses fmt.Fprint in the other files.

// printLine prints one line. The text is escaped, so it does not end the line.
func printLine(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(w, backend.Printable(fmt.Sprintf(format, args...)))
	return err
}

// warn prints one line about what a command met.
func warn(stderr io.Writer, format string, args ...any) {
	printLine(stderr, "leasekeeper: "+format, args...) // there is nobody left to tell
}

// overwriteLine replaces the line of a terminal by text, and the first width columns at least.
func overwriteLine(w io.Writer, width int, text string) {
	fmt.Fprintf(w, "\r%-*s", width, backend.Printable(text))
}

// clearLine removes what overwriteLine wrote.
func clearLine(w io.Writer, width int) { fmt.Fprintf(w, "\r%-*s\r", width, "") }

// printLines prints text of several lines, which keeps its newlines and tabs.
func printLines(w io.Writer, text string) error {
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

// printJSON prints a value for programs. Field names are part of the interface: they are added, never
// renamed.
func printJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// printJSONLine prints a value for programs that read line by line.
func printJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	encoder := json.NewEncoder(jsonEscaper{w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder.Encode(v)
}

// escapedJSON returns a writer that passes on JSON as printJSON prints it.
func escapedJSON(to io.Writer) io.Writer { return jsonEscaper{to} }

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

// printTable prints rows of cells in aligned columns.
func printTable(w io.Writer, rows [][]string) error {
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

// readable shows a key's bytes as text. What does not print, and the backslash, is written as in a Go
// string, so that two keys never look the same.
func readable(key []byte) string {
	quoted := strconv.Quote(string(key))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// bytesInWords shows a size to a person.
func bytesInWords(n int64) string {
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

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
