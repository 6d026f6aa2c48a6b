package sweep

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// excused is a mutant that no test notices, and why none has to.
type excused struct{ key, reason string }

// readSurvivors reads a list of survivors: under "package:" and "reason:", a line "survivor:" for each.
func readSurvivors(text string) (map[string][]excused, error) {
	all := make(map[string][]excused)
	var folder, reason string
	for i, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case key == "package":
			folder, reason = value, ""
		case key == "reason" && folder != "":
			reason = value
		case key == "survivor" && reason != "":
			all[folder] = append(all[folder], excused{value, reason})
		default:
			return nil, fmt.Errorf("line %d: %q has no place here: the order is package, reason, survivor", i+1, line)
		}
	}
	return all, nil
}

// survivorsFile lists the survivors of all packages.
const survivorsFile = "testdata/survivors.txt"

func survivorsOf(t *testing.T, folder string) []excused {
	t.Helper()
	text, err := os.ReadFile(survivorsFile)
	if err != nil {
		t.Fatal(err)
	}
	all, err := readSurvivors(string(text))
	if err != nil {
		t.Fatalf("%s: %v", survivorsFile, err)
	}
	return all[folder]
}

// compare says where the list of survivors and the results of a sweep differ. By gives for each mutant the test that
// noticed it, or "".
func compare(mutants []mutant, by map[string]string, listed []excused) []string {
	var found []string
	known := make(map[string]bool)
	for _, e := range listed {
		test, exists := by[e.key]
		switch {
		case known[e.key]:
			found = append(found, "is listed twice: "+e.key)
		case !exists:
			found = append(found, "is listed as a survivor and does not exist: "+e.key)
		case test != "":
			found = append(found, fmt.Sprintf("is listed as a survivor, but %s notices it: %s", test, e.key))
		}
		known[e.key] = true
	}
	for _, m := range mutants {
		if by[m.key()] == "" && !known[m.key()] {
			found = append(found, fmt.Sprintf("no test notices it: %s (%s)", m.key(), m.place))
		}
	}
	return found
}
