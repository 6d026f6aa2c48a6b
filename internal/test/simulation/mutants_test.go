//go:build !race

package simulation

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mutant is one way to break the product.
type mutant struct {
	name, why string
	options   Options
	from      uint64 // the first seed
	places    []place
}

// place is where a mutant differs: insert stands in front of before.
type place struct{ file, before, insert string }

func readMutants(t *testing.T) []mutant {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "mutants.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
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
		case "from":
			from, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				t.Fatalf("mutants.txt: %v", err)
			}
			m.from = from
		case "with":
			m.options.Stress = Stress(value)
		case "in":
			m.places = append(m.places, place{file: value})
		case "before":
			m.places[len(m.places)-1].before = value
		case "insert":
			m.places[len(m.places)-1].insert = value
		default:
			t.Fatalf("mutants.txt: %q is nothing", line)
		}
	}
	return all
}

// overlay writes the files of all mutants, each of which acts only when it is chosen, and returns what the go command
// needs to take them instead of the true ones.
func overlay(t *testing.T, mutants []mutant) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	texts := make(map[string]string)
	for _, m := range mutants {
		for _, p := range m.places {
			path := filepath.Join(root, filepath.FromSlash(p.file))
			text := texts[path]
			if text == "" {
				source, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				text = string(source)
			}
			if n := strings.Count(text, p.before); n != 1 || p.insert == "" {
				t.Fatalf("mutant %q: %q stands %d times in %s, and not once", m.name, p.before, n, p.file)
			}
			insert := regexp.MustCompile(`\bmutated\b`).ReplaceAllString(p.insert, fmt.Sprintf("mutating(%q)", m.name))
			texts[path] = strings.Replace(text, p.before, insert+" "+p.before, 1)
		}
	}
	texts[filepath.Join(root, "masterlease", "mutating.go")] = "package masterlease\n\n" +
		"// Mutant is the one that is chosen.\nvar Mutant string\n\nfunc mutating(name string) bool { return name == Mutant }\n"
	for _, folder := range []string{"lessor", "internal/ownership", "internal/raftlog", "internal/replica", "internal/replica/record"} {
		texts[filepath.Join(root, folder, "mutating.go")] = "package " + filepath.Base(folder) + "\n\n" +
			"import \"github.com/leasekeeper/leasekeeper/masterlease\"\n\nfunc mutating(name string) bool { return name == masterlease.Mutant }\n"
	}
	texts[filepath.Join(root, "internal", "test", "simulation", "mutating_test.go")] = "package simulation\n\n" +
		"import \"github.com/leasekeeper/leasekeeper/masterlease\"\n\nfunc init() { choose = func(name string) { masterlease.Mutant = name } }\n"
	replace := make(map[string]string)
	folder := t.TempDir()
	for path, text := range texts {
		replace[path] = filepath.Join(folder, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// choose lets a mutant act, in a test binary that was built with all of them.
var choose func(name string)

var oneMutant = flag.String("mutant", "", "look only for the mutants with this in their names")

// mutantSeeds is in how many worlds a mutant has to be found at the latest.
const mutantSeeds = 80

// Each mutant is found, each by a broken invariant.
func TestMutants(t *testing.T) {
	mutants := readMutants(t)
	if choose != nil {
		hunt(t, mutants)
		return
	}
	test := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay(t, mutants), "-count=1", "-v", "-run", "^"+t.Name()+"$",
		".", "-mutant", *oneMutant)
	out, err := test.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, m := range mutants {
		if strings.Contains(m.name, *oneMutant) && !strings.Contains(string(out), "found "+m.name+" ") {
			t.Errorf("nothing is said of the mutant %q", m.name)
		}
	}
	t.Logf("%s", out)
}

// hunt looks for a world of each mutant in which something breaks that does not without the mutant.
func hunt(t *testing.T, mutants []mutant) {
	defer choose("")
	for _, m := range mutants {
		if !strings.Contains(m.name, *oneMutant) {
			continue
		}
		choose(m.name)
		r := Result{}
		for seed := m.from; seed < m.from+mutantSeeds && r.Failure == nil; seed++ {
			r = Run(seed, m.options)
		}
		if r.Failure == nil {
			t.Errorf("%s: %s, and in %d worlds nobody notices", m.name, m.why, mutantSeeds)
			continue
		}
		t.Logf("found %s with seed %d after %v: %s", m.name, r.Seed, r.Failure.At, r.Failure.Invariant)
		choose("")
		if sound := Run(r.Seed, m.options); sound.Failure != nil {
			name := "^TestSeeds$/^" + cmp.Or(string(m.options.Stress), "drawn") + "$"
			explain(t, name, sound)
		}
	}
}
