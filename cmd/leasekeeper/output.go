package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

const (
	outputTable = "table"
	outputJSON  = "json"
)

// printJSON prints a value for programs. Field names are part of the interface: they are added, never
// renamed.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// printTable prints rows of cells in aligned columns.
func printTable(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
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
