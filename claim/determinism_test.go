package claim_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// Files that alone may do what makes a run depend on more than the store's answers and Options.
const (
	clockFile      = "client.go" // fills in the defaults of Options: the machine's clocks, a sleep, the wall clock
	goroutineFile  = "extend.go" // renews a few leases at the same time, for stores without a [claim.Batcher]
	operationsFile = "record.go" // draws the random ops
	pausesFile     = "effort.go" // draws the random part of pauses
)

// impurities finds the places where a file reads a clock, starts a timer or a goroutine, draws random numbers or
// uses the operating system. It leaves out what the constants above allow for the file.
func impurities(name string, file *ast.File) (found []string) {
	refuse := func(what, allowedIn string) {
		if name != allowedIn {
			found = append(found, name+": "+what)
		}
	}
	for _, spec := range file.Imports {
		switch p := strings.Trim(spec.Path.Value, `"`); {
		case p == "crypto/rand":
			refuse("imports "+p, operationsFile)
		case p == "math/rand/v2":
			refuse("imports "+p, pausesFile)
		case slices.Contains([]string{"os", "net", "runtime", "database/sql", "math/rand"}, p):
			refuse("imports "+p, "")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			refuse("has a go statement", "")
		case *ast.SelectorExpr:
			pkg, _ := n.X.(*ast.Ident)
			clocks := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
			switch {
			case pkg != nil && pkg.Name == "time" && slices.Contains(clocks, n.Sel.Name):
				refuse("uses time."+n.Sel.Name, clockFile)
			case pkg != nil && pkg.Name == "clock" && slices.Contains([]string{"System", "SystemDomain", "Now"}, n.Sel.Name):
				refuse("uses clock."+n.Sel.Name, clockFile)
			case n.Sel.Name == "Go":
				refuse("starts a goroutine", goroutineFile)
			}
		}
		return true
	})
	return found
}

func parse(t *testing.T, name string, source any) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A decision depends on records, on Options and on the store's answers alone, so that a test can replay it.
func TestDecisionsReadNoClockAndStartNoGoroutine(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			checked++
			for _, place := range impurities(name, parse(t, name, nil)) {
				t.Error(place)
			}
		}
	}
	if checked < 15 {
		t.Errorf("only %d files were checked", checked)
	}
}

func TestImpureDecisionsAreCaught(t *testing.T) {
	for source, want := range map[string]string{
		`package x; import "os"; var _ = os.Args`:                                              "end.go: imports os",
		`package x; import "crypto/rand"; var _ = rand.Read`:                                   "end.go: imports crypto/rand",
		`package x; import "time"; var _ = time.Now()`:                                         "end.go: uses time.Now",
		`package x; import "github.com/leasekeeper/leasekeeper/clock"; var _ = clock.System{}`: "end.go: uses clock.System",
		`package x; func f() { go f() }`:                                                       "end.go: has a go statement",
		`package x; import "sync"; func f(w *sync.WaitGroup) { w.Go(func() {}) }`:              "end.go: starts a goroutine",
	} {
		if found := impurities("end.go", parse(t, "end.go", source)); !slices.Equal(found, []string{want}) {
			t.Errorf("%s: found %q, not %q", source, found, want)
		}
	}
}
