package console

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/leasekeeper/leasekeeper/backend"
)

// The values of --output.
const (
	Table = "table"
	JSON  = "json"
)

// PrintLine prints one line. It escapes newlines and other control characters in the text.
func PrintLine(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(w, backend.Printable(fmt.Sprintf(format, args...)))
	return err
}

// Warn prints one line of warning to stderr, after the name of this program.
func Warn(stderr io.Writer, format string, args ...any) {
	PrintLine(stderr, "leasekeeper: "+format, args...) // an error of stderr cannot be reported
}

// PrintLines prints several lines. It keeps newlines and tabs, and escapes other control characters.
func PrintLines(w io.Writer, text string) error {
	_, err := io.WriteString(w, printableLines(text))
	return err
}

// PaintLines is [PrintLines] with a tone for the first word of each line. tone receives an empty word for a line that begins
// with a space.
func PaintLines(w io.Writer, text string, tone func(word string) Tone) error {
	paints := streamOf(w).paints()
	var painted strings.Builder
	for line := range strings.Lines(printableLines(text)) {
		word := line[:max(0, strings.IndexAny(line, " \n"))]
		if paints {
			line = tone(word).in(word) + line[len(word):]
		}
		painted.WriteString(line)
	}
	_, err := io.WriteString(w, painted.String())
	return err
}

// printableLines keeps the newlines and tabs of a text, and escapes other control characters.
func printableLines(text string) string {
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
	return printable.String()
}

// PrintJSON prints a value for programs. Field names are part of the interface: a version may add some, but renames
// none.
func PrintJSON(w io.Writer, v any) error { return encodeJSON(w, v, "  ") }

// PrintJSONLine prints a value for programs that read line by line.
func PrintJSONLine(w io.Writer, v any) error { return encodeJSON(w, v, "") }

func encodeJSON(w io.Writer, v any, indent string) error {
	encoder := json.NewEncoder(jsonEscaper{w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	return encoder.Encode(v)
}

// EscapedJSON returns a writer that escapes JSON as PrintJSON does, and forwards it to to.
func EscapedJSON(to io.Writer) io.Writer { return jsonEscaper{to} }

// jsonEscaper escapes the control characters that package encoding/json leaves: those of two bytes, DEL, and those that
// change the direction of text. They occur only inside strings, where JSON allows the escapes.
type jsonEscaper struct{ to io.Writer }

// Write implements [io.Writer]. The caller passes whole JSON values.
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

// Readable returns a key's bytes as text. It writes backslashes and unprintable characters as in a Go string, so that
// two different keys never look the same.
func Readable(key []byte) string {
	quoted := strconv.Quote(string(key))
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// BytesInWords formats a size for people, such as 1.5 MiB.
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

// Plural returns "1 one", or n and many.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
