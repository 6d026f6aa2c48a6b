//go:build !race

package simulation

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// overlay writes the mutated files, and returns the path of the file that has the go command build them instead of the true
// ones. A mutant acts only while it is chosen.
func overlay(t *testing.T, mutants []mutant) string {
	t.Helper()
	s := productSources()
	texts := mutate(t, s, mutants)
	texts[filepath.Join(s.root, "masterlease", "mutating.go")] = "package masterlease\n\n" +
		"// Mutant is the one that is chosen.\nvar Mutant string\n\nfunc mutating(name string) bool { return name == Mutant }\n"
	for folder := range s.folders {
		if folder != "masterlease" {
			texts[filepath.Join(s.root, filepath.FromSlash(folder), "mutating.go")] = "package " + path.Base(folder) + "\n\n" +
				"import \"github.com/leasekeeper/leasekeeper/masterlease\"\n\nfunc mutating(name string) bool { return name == masterlease.Mutant }\n"
		}
	}
	texts[filepath.Join(s.root, "internal", "test", "simulation", "mutating_test.go")] = "package simulation\n\n" +
		"import \"github.com/leasekeeper/leasekeeper/masterlease\"\n\nfunc init() { choose = func(name string) { masterlease.Mutant = name } }\n"
	replace := make(map[string]string)
	folder := t.TempDir()
	for name, text := range texts {
		replace[name] = filepath.Join(folder, fmt.Sprintf("%d.go", len(replace)))
		if err := os.WriteFile(replace[name], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	encoded, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(name, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// mutate returns the texts, by path, of the files with places of mutants, with each mutant's statements inserted. All
// lines keep their numbers.
func mutate(t *testing.T, s *sources, mutants []mutant) map[string]string {
	t.Helper()
	type insertion struct {
		offset int
		text   string
	}
	insertions := make(map[*sourceFile][]insertion)
	for _, m := range mutants {
		for _, p := range m.places {
			in, offset, err := s.resolve(p.anchor)
			if err != nil {
				t.Fatalf("mutant %q: %v", m.name, err)
			}
			imports, err := missingImports(in, s.folders[p.folder], p.insert)
			if err != nil {
				t.Fatalf("mutant %q: %v", m.name, err)
			}
			for _, spec := range imports {
				added := insertion{in.file.Offset(in.syntax.Name.End()), "; import " + spec}
				if !slices.Contains(insertions[in], added) {
					insertions[in] = append(insertions[in], added)
				}
			}
			statement := regexp.MustCompile(`\bmutated\b`).ReplaceAllString(p.insert, fmt.Sprintf("mutating(%q)", m.name))
			insertions[in] = append(insertions[in], insertion{offset, statement + "; "})
		}
	}
	texts := make(map[string]string)
	for in, list := range insertions {
		slices.SortStableFunc(list, func(a, b insertion) int { return cmp.Compare(a.offset, b.offset) })
		var text strings.Builder
		done := 0
		for _, i := range list {
			text.WriteString(in.text[done:i.offset])
			text.WriteString(i.text)
			done = i.offset
		}
		texts[in.path] = text.String() + in.text[done:]
	}
	return texts
}

// choose selects the mutant that acts; "" selects none. It is nil in a test binary without mutants.
var choose func(name string)

var oneMutant = flag.String("mutant", "", "run only mutants whose names contain this")

// mutantSeeds is the number of worlds in which a mutant must be found.
const mutantSeeds = 80

// Each mutant breaks an invariant in some world.
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
			t.Errorf("the mutant %q was not run", m.name)
		}
	}
	t.Logf("%s", out)
}

// hunt finds, for each mutant, a world in which an invariant breaks that holds without the mutant.
func hunt(t *testing.T, mutants []mutant) {
	defer choose("")
	for _, m := range mutants {
		if !strings.Contains(m.name, *oneMutant) {
			continue
		}
		choose(m.name)
		r := Result{}
		for seed := m.from; seed < m.from+mutantSeeds && (r.Failure == nil || !strings.Contains(r.Failure.Invariant, m.by)); seed++ {
			r = Run(seed, m.options)
		}
		if r.Failure == nil || !strings.Contains(r.Failure.Invariant, m.by) {
			t.Errorf("%s: %s, and no invariant %q breaks in %d worlds", m.name, m.why, m.by, mutantSeeds)
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
