package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// purePackage is a package whose results follow from its inputs alone.
type purePackage struct {
	folder string
	// exempt are the files that may read clocks, start goroutines and so on, each with the reason why it is not in another
	// package.
	exempt map[string]string
	// also are packages of this module that it may import besides the clock.
	also []string
	// composed packages put pure packages and storage together, so they may import packages outside the standard library.
	// All other rules hold.
	composed bool
}

const (
	oneInterface = "is one implementation of Now per system: it returns instants of this package, and all callers of the package use it"
	oneProcess   = "does with processes what judge.go decides: it uses that package's private types, and nothing else uses them"
)

var purePackages = []purePackage{
	{folder: "clock", exempt: map[string]string{
		"system_clock.go":   oneInterface,
		"system_darwin.go":  oneInterface,
		"system_linux.go":   oneInterface,
		"system_other.go":   oneInterface,
		"system_windows.go": oneInterface,
	}},
	{folder: "lessor", exempt: map[string]string{
		"driver.go":    "runs a lessor for programs without a log of their own; the type is part of the package's API",
		"interface.go": "declares what Driver offers: one of its methods returns a channel, and the default clock is clock.Now",
	}},
	{folder: "masterlease"},
	// The owner of a name follows from keys and leases. The package needs neither the keyspace nor the log.
	{folder: "internal/ownership", also: []string{"lessor"}},
	{folder: "internal/access", exempt: map[string]string{
		"published.go": "hands a policy from the goroutine that applies commands to all others; the type is part of the package's promise",
	}},
	{folder: "internal/keepalive"},
	{folder: "internal/queue"},
	{folder: "internal/waitlist"},
	{folder: "internal/backoff"},
	{folder: "internal/histogram"},
	{folder: "fence", exempt: map[string]string{
		"guard.go": "locks and waits for the lanes of lane.go, and calls what saves the marks; the type is part of the package's API",
	}},
	{folder: "internal/replica", composed: true},
	{folder: "internal/raftlog", composed: true},
	{folder: "internal/replica/entry", composed: true},
	{folder: "internal/replica/event", composed: true},
	{folder: "internal/replica/roster", composed: true},
	{folder: "internal/replica/intake", also: []string{
		"lessor", "internal/access", "internal/keyspace", "internal/ownership", "internal/replica/entry", "internal/replica/fairqueue",
	}},
	{folder: "internal/replica/permit", also: []string{
		"lessor", "internal/access", "internal/keyspace", "internal/ownership", "internal/replica/entry",
	}},
	{folder: "internal/replica/fairqueue"},
	{folder: "internal/replica/gate"},
	{folder: "internal/replica/yield", also: []string{"internal/replica/intake", "internal/replica/memberpb"}},
	{folder: "internal/replica/message", composed: true},
	{folder: "internal/replica/record", composed: true},
	{folder: "internal/wire", composed: true},
	{folder: "internal/supervise", exempt: map[string]string{
		"alarm.go":         oneProcess,
		"die_unix.go":      oneProcess,
		"guard_unix.go":    oneProcess,
		"message.go":       oneProcess,
		"outcome.go":       oneProcess,
		"system_darwin.go": oneProcess,
		"system_linux.go":  oneProcess,
		"terminal_unix.go": oneProcess,
		"unsupported.go":   oneProcess,
		"spare_unix.go":    oneProcess,
		"wrapper_unix.go":  oneProcess,
	}},
}

func (pure purePackage) exempts(f *file) bool {
	return f.isTest() || f.generated() || pure.exempt[f.base()] != ""
}

// idleExemptions finds exempt files that do not exist, and exemptions without a reason.
func idleExemptions(pure purePackage, files []*file) []breach {
	var found []breach
	for _, name := range sortedKeys(pure.exempt) {
		switch {
		case !slices.ContainsFunc(files, func(f *file) bool { return f.base() == name }):
			found = append(found, breach{pure.folder + "/" + name, "is exempt from determinism but does not exist: remove it from the list of pure packages"})
		case pure.exempt[name] == "":
			found = append(found, breach{pure.folder + "/" + name, "is exempt from determinism without a reason: say why it is not in another package"})
		}
	}
	return found
}

// worldlyPackages of the standard library bring in time, chance, other goroutines or the outside.
var worldlyPackages = []string{
	"os", "net", "flag", "log", "sync", "syscall", "runtime", "plugin", "context", "testing",
	"math/rand", "crypto/rand", "hash/maphash", "database/sql", "io/ioutil",
}

// harmlessPackages are below one of worldlyPackages, and bring in nothing of these.
var harmlessPackages = []string{"net/netip"}

func impureImports(pure purePackage, files []*file, fset *token.FileSet) []breach {
	var found []breach
	t := &tree{fset: fset}
	for _, f := range files {
		if pure.exempts(f) {
			continue
		}
		for _, spec := range f.ast.Imports {
			p := importPath(spec)
			worldly := slices.ContainsFunc(worldlyPackages, func(w string) bool { return within(p, w) }) && !slices.Contains(harmlessPackages, p)
			foreign := !isStandard(p) && p != modulePath+"/clock" && !slices.ContainsFunc(pure.also, func(own string) bool { return p == modulePath+"/"+own })
			if worldly || foreign && !pure.composed {
				found = append(found, breach{t.at(spec), pure.folder + " is deterministic and must not import " + p})
			}
		}
	}
	return found
}

// timeFunctions of package time read a clock or start a timer.
var timeFunctions = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// mapOrder are functions of package maps whose results come in the map's order, which is none.
var mapOrder = []string{"Keys", "Values", "All"}

// sorters are functions of package slices that sort the values of an iterator.
var sorters = []string{"Sorted", "SortedFunc", "SortedStableFunc"}

// inspection looks for impure syntax in one file.
type inspection struct {
	fset    *token.FileSet
	info    *types.Info
	excused map[int]bool // lines that may range over a map
	sorted  map[ast.Node]bool
	found   []breach
}

func impureSyntax(pure purePackage, files []*file, fset *token.FileSet, info *types.Info) []breach {
	var found []breach
	for _, f := range files {
		if pure.exempts(f) {
			continue
		}
		in := &inspection{fset: fset, info: info, excused: excuses(fset, f.ast), sorted: make(map[ast.Node]bool)}
		ast.Inspect(f.ast, in.look)
		found = append(found, in.found...)
	}
	return found
}

// excuses returns the lines that a comment "// order: reason" stands on or above.
func excuses(fset *token.FileSet, f *ast.File) map[int]bool {
	lines := make(map[int]bool)
	for _, group := range f.Comments {
		for _, comment := range group.List {
			if reason, ok := strings.CutPrefix(comment.Text, "// order: "); ok && strings.TrimSpace(reason) != "" {
				lines[fset.Position(comment.Pos()).Line] = true
				lines[fset.Position(group.End()).Line+1] = true
			}
		}
	}
	return lines
}

func (in *inspection) report(n ast.Node, format string, args ...any) {
	t := &tree{fset: in.fset}
	in.found = append(in.found, breach{t.at(n), "is deterministic: " + fmt.Sprintf(format, args...)})
}

func (in *inspection) look(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		in.report(n, "no goroutines")
	case *ast.ChanType, *ast.SelectStmt, *ast.SendStmt:
		in.report(n, "no channels")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			in.report(n, "no channels")
		}
	case *ast.RangeStmt:
		in.lookAtRange(n)
	case *ast.CallExpr:
		if in.isFunction(n.Fun, "slices", sorters) {
			for _, arg := range n.Args {
				if call, ok := arg.(*ast.CallExpr); ok {
					in.sorted[call] = true
				}
			}
		}
		if in.isFunction(n.Fun, "maps", mapOrder) && !in.sorted[n] && !in.excused[in.fset.Position(n.Pos()).Line] {
			in.report(n, "a map has no order: sort it, or say why it does not matter in a comment // order: …")
		}
	case *ast.Ident:
		in.lookAtUse(n)
	}
	return true
}

func (in *inspection) lookAtRange(n *ast.RangeStmt) {
	of := in.info.TypeOf(n.X)
	if of == nil {
		in.report(n, "the type of what is ranged over is not known")
		return
	}
	switch of.Underlying().(type) {
	case *types.Chan:
		in.report(n, "no channels")
	case *types.Map:
		if !in.excused[in.fset.Position(n.Pos()).Line] {
			in.report(n, "a map has no order: sort its keys, or say why it does not matter in a comment // order: …")
		}
	}
}

// lookAtUse finds uses of functions that read a clock, by whatever name the package was imported.
func (in *inspection) lookAtUse(id *ast.Ident) {
	fn, ok := in.info.Uses[id].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
		return
	}
	reads := fn.Pkg().Path() == "time" && slices.Contains(timeFunctions, fn.Name()) ||
		fn.Pkg().Path() == modulePath+"/clock" && fn.Name() == "Now"
	if reads {
		in.report(id, "%s.%s: the time comes in as an argument", fn.Pkg().Name(), fn.Name())
	}
}

func (in *inspection) isFunction(e ast.Expr, pkg string, names []string) bool {
	if index, ok := e.(*ast.IndexExpr); ok {
		e = index.X
	}
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	fn, ok := in.info.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && fn.Pkg().Path() == pkg && slices.Contains(names, fn.Name())
}

// checkTypes returns the types of a package's files.
func checkTypes(name string, files []*file, fset *token.FileSet, exports map[string]string) (*types.Info, error) {
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	lookup := func(p string) (io.ReadCloser, error) {
		if exports[p] == "" {
			return nil, fmt.Errorf("no export data for %s", p)
		}
		return os.Open(exports[p])
	}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	var parsed []*ast.File
	for _, f := range files {
		parsed = append(parsed, f.ast)
	}
	_, err := config.Check(name, fset, parsed, info)
	return info, err
}

// exportData returns where the compiler's view of each package lies: of pure packages and those below them, and of the
// standard packages that the examples use.
func exportData(t *testing.T) map[string]string {
	t.Helper()
	patterns := []string{"time", "maps", "slices", "sort"}
	for _, pure := range purePackages {
		if _, err := os.Stat(filepath.Join(root, pure.folder)); err == nil {
			patterns = append(patterns, "./"+pure.folder)
		}
	}
	exports := make(map[string]string)
	for _, p := range goList(t, append([]string{"-export", "-deps"}, patterns...)...) {
		exports[p.ImportPath] = p.Export
	}
	return exports
}

func TestPurePackagesAreDetermined(t *testing.T) {
	all := repository(t).folders()
	fset := token.NewFileSet()
	exports := exportData(t)
	for _, pure := range purePackages {
		t.Run(pure.folder, func(t *testing.T) {
			if len(all[pure.folder]) == 0 {
				t.Fatal("there is no such package")
			}
			holds(t, idleExemptions(pure, all[pure.folder]))
			// Parsed again: only the files that are built here can be checked together.
			built := &tree{fset: fset}
			for _, p := range goList(t, "./"+pure.folder) {
				for _, name := range p.GoFiles {
					source, err := os.ReadFile(filepath.Join(root, pure.folder, name))
					if err != nil {
						t.Fatal(err)
					}
					if err := built.add(path.Join(pure.folder, name), source); err != nil {
						t.Fatal(err)
					}
				}
			}
			info, err := checkTypes(modulePath+"/"+pure.folder, built.files, fset, exports)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, impureImports(pure, built.files, fset))
			holds(t, impureSyntax(pure, built.files, fset, info))
		})
	}
}

func TestImpureImportsAreCaught(t *testing.T) {
	lessor := purePackage{folder: "lessor", exempt: map[string]string{"driver.go": "a reason"}}
	replica := purePackage{folder: "replica", composed: true}
	importing := func(p string) *tree {
		return example(t, "lessor/x.go", "package lessor\n\nimport _ \""+p+"\"\n",
			"lessor/driver.go", "package lessor\n\nimport _ \""+p+"\"\n",
			"lessor/x_test.go", "package lessor\n\nimport _ \""+p+"\"\n")
	}
	for _, p := range append([]string{"net/http", "sync/atomic", "log/slog", "math/rand/v2", "os/exec"}, worldlyPackages...) {
		bad := importing(p)
		catches(t, impureImports(lessor, bad.files, bad.fset), "lessor/x.go", p)
		catches(t, impureImports(replica, bad.files[:1], bad.fset), "lessor/x.go", p)
	}
	foreign := importing("github.com/cockroachdb/pebble/v2")
	catches(t, impureImports(lessor, foreign.files, foreign.fset), "lessor/x.go", "pebble")
	holds(t, impureImports(replica, foreign.files, foreign.fset))
	own := importing(modulePath + "/lessor")
	catches(t, impureImports(lessor, own.files, own.fset), "lessor/x.go", "lessor")
	holds(t, impureImports(purePackage{folder: "lessor", also: []string{"lessor"}}, own.files, own.fset))
	for _, p := range append([]string{"errors", "time", "slices", "encoding/binary", modulePath + "/clock"}, harmlessPackages...) {
		good := importing(p)
		holds(t, impureImports(lessor, good.files, good.fset))
	}
}

func TestIdleExemptionsAreCaught(t *testing.T) {
	files := example(t, "lessor/driver.go", "package lessor\n").files
	exempt := func(name, reason string) purePackage {
		return purePackage{folder: "lessor", exempt: map[string]string{name: reason}}
	}
	holds(t, idleExemptions(exempt("driver.go", "a reason"), files))
	catches(t, idleExemptions(exempt("drive.go", "a reason"), files), "lessor/drive.go", "does not exist")
	catches(t, idleExemptions(exempt("driver.go", ""), files), "lessor/driver.go", "without a reason")
}

func TestImpureSyntaxIsCaught(t *testing.T) {
	exports := exportData(t)
	check := func(body string) []breach {
		t.Helper()
		source := "package lessor\n\nimport (\n\t\"maps\"\n\t\"slices\"\n\tclk \"time\"\n\t\"" + modulePath + "/clock\"\n)\n\n" +
			"var _ = maps.Copy[map[int]int, map[int]int]\nvar _ = slices.Max[[]int]\nvar _ clk.Duration\nvar _ clock.Instant\n\n" +
			"func f(m map[int]int) {\n" + body + "\n}\n"
		all := example(t, "lessor/x.go", source)
		info, err := checkTypes("lessor", all.files, all.fset, exports)
		if err != nil {
			t.Fatal(err)
		}
		return impureSyntax(purePackage{folder: "lessor"}, all.files, all.fset, info)
	}
	for _, c := range []struct{ body, what string }{
		{"go f(m)", "no goroutines"},
		{"var c chan int; _ = c", "no channels"},
		{"select {}", "no channels"},
		{"_ = clk.Now()", "time.Now"},
		{"g := clk.Now; _ = g", "time.Now"},
		{"clk.Sleep(1)", "time.Sleep"},
		{"_ = clk.NewTimer(1)", "time.NewTimer"},
		{"_ = clock.Now()", "clock.Now"},
		{"for range m {\n}", "a map has no order"},
		{"// order:\nfor range m {\n}", "a map has no order"},
		{"type n map[int]int\nfor k := range n(m) { _ = k }", "a map has no order"},
		{"for k := range maps.Keys(m) { _ = k }", "a map has no order"},
		{"_ = slices.Collect(maps.Values(m))", "a map has no order"},
	} {
		catches(t, check(c.body), "lessor/x.go", c.what)
	}
	for _, body := range []string{
		"// order: they are only counted\nfor range m {\n}",
		"for range m { // order: they are only counted\n}",
		"for _, k := range slices.Sorted(maps.Keys(m)) { _ = k }",
		"for i := range 3 { _ = i }",
		"_ = clk.Second.Seconds()",
	} {
		holds(t, check(body))
	}
}
