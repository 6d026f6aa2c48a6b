package simulation

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// mutant is one way to break the product.
type mutant struct {
	name, why string
	by        string // a part of the invariant that must break; "" admits every invariant
	options   Options
	from      uint64 // the first seed
	places    []place
}

// place is where a mutant differs: it runs the statement insert before the statement of the anchor.
type place struct {
	anchor
	insert string
}

func readMutants(t *testing.T) []mutant {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "mutants.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	in := "" // the function of the next place
	for _, line := range strings.Split(string(text), "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
			continue
		case key == "mutant":
			all = append(all, mutant{name: value, from: 1})
			continue
		}
		m := &all[len(all)-1]
		switch key {
		case "why":
			m.why = value
		case "by":
			m.by = value
		case "from":
			from, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				t.Fatalf("mutants.txt: %v", err)
			}
			m.from = from
		case "with":
			m.options.Stress = Stress(value)
		case "in":
			in = value
		case "at":
			a, err := parseAnchor(in, value)
			if err != nil {
				t.Fatalf("mutants.txt: mutant %q: %v", m.name, err)
			}
			m.places = append(m.places, place{anchor: a})
		case "insert":
			m.places[len(m.places)-1].insert = value
		default:
			t.Fatalf("mutants.txt: the line %q begins with no known word", line)
		}
	}
	return all
}

// productSources reads the product's packages when they are asked for.
func productSources() *sources {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		panic(err)
	}
	return &sources{root: root, folders: make(map[string][]*sourceFile)}
}
