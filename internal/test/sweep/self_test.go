package sweep

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// The toy package has guards of each kind. The sweep must tell those that a test notices from the others.
func TestSweepOfTheToyPackage(t *testing.T) {
	folder := "internal/test/sweep/testdata/toy"
	s := begin(t, folder, []suite{{folder: folder}}, t.TempDir())
	s.binaries[0].patience = time.Second
	by := make(map[string]string)
	for _, m := range s.mutants {
		by[m.key()] = s.hunt(t, m, s.binaries)
	}
	want := map[string]string{
		"Share: never if heads == 0":                         "TestShare",
		"Share: never if sum == 0":                           "",
		"Within: without n >= low of n >= low && n <= high":  "TestWithinKnowsTheLowerBound",
		"Within: without n <= high of n >= low && n <= high": "",
		"Halve: never case n == 0":                           "a test that does not end",
		"Halve: never case n%2 != 0":                         "TestHalve",
		"Unused: never if n < 0":                             "",
	}
	if !maps.Equal(by, want) {
		t.Errorf("the sweep found\n%v\nand should find\n%v", by, want)
	}
	// What is known is not tried again: without the binary there is nothing to run.
	s.binaries[0].path = "nothing"
	for _, m := range s.mutants {
		s.results[m.key()] = []result{{m.key(), s.code, folder, s.binaries[0].sum, by[m.key()]}}
		if again := s.hunt(t, m, s.binaries); again != by[m.key()] {
			t.Errorf("%s: noticed by %q, and by %q according to the results", m.key(), by[m.key()], again)
		}
	}
}

func TestDifferencesFromTheListFail(t *testing.T) {
	mutants := []mutant{{1, "F", "never if a", "x.go:1"}, {2, "F", "never if b", "x.go:2"}}
	by := map[string]string{"F: never if a": "TestF", "F: never if b": ""}
	for _, c := range []struct {
		listed []string
		want   []string
	}{
		{[]string{"F: never if b"}, nil},
		{nil, []string{"no test notices it: F: never if b (x.go:2)"}},
		{[]string{"F: never if b", "F: never if a"}, []string{"is listed as a survivor, but TestF notices it: F: never if a"}},
		{[]string{"F: never if b", "F: never if c"}, []string{"is listed as a survivor and does not exist: F: never if c"}},
		{[]string{"F: never if b", "F: never if b"}, []string{"is listed twice: F: never if b"}},
	} {
		var listed []excused
		for _, key := range c.listed {
			listed = append(listed, excused{key, "a reason"})
		}
		if found := compare(mutants, by, listed); !slices.Equal(found, c.want) {
			t.Errorf("with the list %q: %q, not %q", c.listed, found, c.want)
		}
	}
}

func TestSurvivorsNeedAPackageAndAReason(t *testing.T) {
	all, err := readSurvivors("# x\n\npackage: a\nreason: r\nsurvivor: F: never if x\npackage: b\nreason: s\nsurvivor: G: never if y\n")
	if err != nil || len(all) != 2 || all["a"][0] != (excused{"F: never if x", "r"}) || all["b"][0] != (excused{"G: never if y", "s"}) {
		t.Errorf("%v, %v", all, err)
	}
	for _, bad := range []string{"survivor: F: never if x", "package: a\nsurvivor: F: never if x", "package: a\nreason: r\npackage: b\nsurvivor: F: x", "reason: r", "word"} {
		if _, err := readSurvivors(bad); err == nil || !strings.Contains(err.Error(), "has no place here") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The list of survivors that the repository has can be read, and names only packages that are swept.
func TestTheListIsOfSweptPackages(t *testing.T) {
	for _, subject := range subjects {
		mutants, _, err := mutate(root + "/" + subject.folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range survivorsOf(t, subject.folder) {
			if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.key() == e.key }) {
				t.Errorf("%s lists a guard of %s that does not exist: %s", survivorsFile, subject.folder, e.key)
			}
		}
	}
}
