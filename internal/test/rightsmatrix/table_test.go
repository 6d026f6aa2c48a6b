package rightsmatrix

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const matrixFile = "testdata/matrix.txt"

// columns are the callers, in the order of the table.
var columns = []string{"nobody", "forged", "stranger", "bare", "half", "root"}

// row is a request of the table.
type row struct {
	method, request string
	want            map[string]outcome // by column
	after           outcome            // for half, after it has lost its role
	learned         map[string]bool    // cells, while the table is written
	line            int
}

// cell is what a caller should receive.
func (r *row) cell(column string, withdrawn bool) outcome {
	if withdrawn && column == "half" {
		return r.after
	}
	return r.want[column]
}

// readTable reads the table. The line of a method begins at the left margin; its requests follow, indented. A cell of half has
// two outcomes with > between them if the second, after the loss of the role, is not that of bare.
func readTable(t testing.TB) (rows []*row) {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	wantOK(t, err)
	method := ""
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "/"):
			method = line
		default:
			request, cells, ok := strings.Cut(line, " | ")
			found := strings.Fields(cells)
			if method == "" || !ok && !*rewrite || len(found) != len(columns) && !*rewrite {
				t.Fatalf("%s:%d: %q is not a request and %d cells", matrixFile, i+1, line, len(columns))
			}
			r := &row{method: method, request: strings.TrimSpace(request), want: make(map[string]outcome), learned: make(map[string]bool), line: i + 1}
			for i, cell := range found {
				before, after, two := strings.Cut(cell, ">")
				r.want[columns[i]] = outcome(before)
				if two {
					r.after = outcome(after)
				}
			}
			if r.after == "" {
				r.after = r.want["bare"]
			}
			rows = append(rows, r)
		}
	}
	return rows
}

// widthOfRequest is the width of the first column in the file.
const widthOfRequest = 100

// writeTable writes outcomes into the table.
func writeTable(t testing.TB, rows []*row) {
	t.Helper()
	text, err := os.ReadFile(matrixFile)
	wantOK(t, err)
	lines := strings.Split(string(text), "\n")
	for _, r := range rows {
		out := fmt.Sprintf("    %-*s |", widthOfRequest, r.request)
		for _, column := range columns {
			cell := string(r.want[column])
			if column == "half" && r.after != r.want["bare"] {
				cell += ">" + string(r.after)
			}
			out += fmt.Sprintf(" %-18s", cell)
		}
		lines[r.line-1] = strings.TrimRight(out, " ")
	}
	wantOK(t, os.WriteFile(matrixFile, []byte(strings.Join(lines, "\n")), 0o644))
}

// thing is a word of a request that stands for the number of something.
var thing = regexp.MustCompile(`\$[a-zA-Z]+`)

// fill replaces the words that begin with $ by the numbers of new things. The same word twice is the same thing.
func (w *world) fill(request string) (string, error) {
	numbers := make(map[string]string)
	for _, word := range slices.Compact(slices.Sorted(slices.Values(thing.FindAllString(request, -1)))) {
		make, known := things[word]
		if !known {
			return "", fmt.Errorf("%s is none of %v", word, slices.Sorted(maps.Keys(things)))
		}
		number := w.number.Add(1)
		if err := make(w, number); err != nil {
			return "", fmt.Errorf("%s: %w", word, err)
		}
		numbers[word] = fmt.Sprint(number)
	}
	return thing.ReplaceAllStringFunc(request, func(word string) string { return numbers[word] }), nil
}
