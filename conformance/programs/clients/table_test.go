package clients

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

// row is a test of a suite in testdata/tests.txt.
type row struct {
	suite, name string
	excluded    string // the reason why it does not run; "" if it does
	always      bool   // it is in the part that runs by default
	faults      bool   // it also runs while the leader is killed and members are replaced
}

// table has the rows of testdata/tests.txt.
type table []row

// readTable reads the table. A line is a suite, a test, and either "runs", with words after it, or "excluded:" with a
// reason after it.
func readTable(t *testing.T) table {
	t.Helper()
	data, err := os.ReadFile("testdata/tests.txt")
	check(t, err)
	var rows table
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 3 {
			t.Fatalf("testdata/tests.txt: a line of %d words: %s", len(fields), line)
		}
		r := row{suite: fields[0], name: fields[1]}
		switch {
		case fields[2] == "excluded:" && len(fields) > 3:
			r.excluded = strings.Join(fields[3:], " ")
		case fields[2] == "runs":
			for _, word := range fields[3:] {
				switch word {
				case "always":
					r.always = true
				case "faults":
					r.faults = true
				default:
					t.Fatalf("testdata/tests.txt: unknown word %q: %s", word, line)
				}
			}
		default:
			t.Fatalf("testdata/tests.txt: a line without runs, and without excluded: and a reason: %s", line)
		}
		rows = append(rows, r)
	}
	return rows
}

// suites returns the names of the suites in the order of their first rows.
func (rows table) suites() []string {
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.suite) {
			names = append(names, r.suite)
		}
	}
	return names
}

// names returns the tests of a suite that are wanted.
func (rows table) names(suite string, wanted func(row) bool) []string {
	var names []string
	for _, r := range rows {
		if r.suite == suite && wanted(r) {
			names = append(names, r.name)
		}
	}
	return names
}

// wantComplete fails the test if the table has a test that the suites do not have, or has one twice, or lacks one.
func (rows table) wantComplete(t *testing.T, b binaries) {
	t.Helper()
	for _, name := range rows.suites() {
		want, got := b.list(t, name), rows.names(name, func(row) bool { return true })
		slices.Sort(want)
		slices.Sort(got)
		for i, test := range got {
			if i > 0 && got[i-1] == test {
				t.Errorf("testdata/tests.txt has %s of suite %s twice", test, name)
			}
			if !slices.Contains(want, test) {
				t.Errorf("testdata/tests.txt has %s, which suite %s does not have", test, name)
			}
		}
		for _, test := range want {
			if !slices.Contains(got, test) {
				t.Errorf("testdata/tests.txt lacks %s of suite %s", test, name)
			}
		}
	}
}

// all says whether all tests run, and not only those that always do.
func all() bool { return suite.Listed("clients") }

// runs says whether a test runs.
func (r row) runs() bool { return r.always || all() && r.excluded == "" }
