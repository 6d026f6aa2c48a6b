//go:build unix

package otherlocks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

// builtDir has the programs that the tests build. TestMain makes and removes it.
var builtDir string

// builtPages has the paths of the programs of each page that was built, by page. No test of this package runs in parallel.
var builtPages = map[string][]string{}

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "otherlocks-")
	if err != nil {
		panic(err)
	}
	builtDir = dir
	code := databases.Main(m)
	_ = os.RemoveAll(dir) // it is in the folder for temporary files
	os.Exit(code)
}

// busy is what a program of a page prints if another one works.
const busy = "another process makes the backup"

// move is the change of a fleet from another lock to leases: a program of today, one that holds both, and one with a lease
// alone.
type move struct {
	old, both, fresh string
	env              []string
}

// buildPage compiles the programs of a page, once for all tests.
func buildPage(t *testing.T, page string, programs int) []string {
	t.Helper()
	if builtPages[page] == nil {
		builtPages[page] = pageprogram.Build(t, "../../../docs/compare/"+page, programs, filepath.Join(builtDir, page))
	}
	return builtPages[page]
}

// build compiles the three programs of a page.
func build(t *testing.T, page string, env ...string) move {
	t.Helper()
	built := buildPage(t, page, 3)
	return move{built[0], built[1], built[2], env}
}

// neverMeets fails unless each two programs that run at the same time during the change exclude each other. The first
// and the last kind never do.
func (m move) neverMeets(t *testing.T) {
	kinds := []struct{ name, program string }{{"old", m.old}, {"both", m.both}, {"new", m.fresh}}
	for i, first := range kinds {
		for j, second := range kinds {
			if i-j > 1 || j-i > 1 {
				continue
			}
			t.Run(first.name+" works, "+second.name+" tries", func(t *testing.T) {
				fleet := pageprogram.NewFleet(t)
				one := fleet.Start("the first", first.program, m.env...)
				one.Works()
				fleet.Start("the second", second.program, m.env...).Refused(0, busy)
				one.Finish()
				next := fleet.Start("the third", second.program, m.env...)
				next.Works()
				next.Finish()
			})
		}
	}
}

// meets fails if an old program keeps one with a lease alone from working: then the program between them would be needless.
func (m move) meets(t *testing.T) {
	fleet := pageprogram.NewFleet(t)
	one := fleet.Start("the first", m.old, m.env...)
	one.Works()
	fleet.Start("the second", m.fresh, m.env...).Overlaps()
	one.Finish()
}
