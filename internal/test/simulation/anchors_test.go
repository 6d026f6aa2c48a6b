package simulation

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// anchor names a place in a function by syntax, independent of files and formatting. It resolves to the statement that
// contains the place.
type anchor struct {
	folder   string // the package's directory, from the root of the repository
	function string // "f", "(T).m", "(*T).m", or "v.f" for a function literal that is field f of the variable v
	kind     string // entry, return, if, for, call or assign
	name     string // the name that the place mentions; "" admits every name
	number   int    // which of several such places, in source order from 1; 0 demands that there is exactly one
}

func (a anchor) String() string {
	s := a.folder + " " + a.function + ": " + a.kind
	if a.name != "" {
		s += " " + a.name
	}
	if a.number > 0 {
		s += fmt.Sprintf(" #%d", a.number)
	}
	return s
}

var anchorKinds = []string{"entry", "return", "if", "for", "call", "assign"}

// parseAnchor reads "FOLDER FUNCTION" and "KIND [NAME] [#N]".
func parseAnchor(in, at string) (anchor, error) {
	var a anchor
	var ok bool
	if a.folder, a.function, ok = strings.Cut(in, " "); !ok {
		return a, fmt.Errorf("%q does not name a folder and a function", in)
	}
	words := strings.Fields(at)
	if len(words) == 0 || !slices.Contains(anchorKinds, words[0]) {
		return a, fmt.Errorf("%q begins with none of %s", at, strings.Join(anchorKinds, ", "))
	}
	a.kind, words = words[0], words[1:]
	if len(words) > 0 && !strings.HasPrefix(words[0], "#") {
		a.name, words = words[0], words[1:]
	}
	if len(words) > 0 {
		number, err := strconv.Atoi(strings.TrimPrefix(words[0], "#"))
		if err != nil || number < 1 || len(words) > 1 || words[0][0] != '#' {
			return a, fmt.Errorf("%q does not end with a number like #2", at)
		}
		a.number = number
	}
	return a, nil
}

// sourceFile is one file of the product, before mutants are inserted.
type sourceFile struct {
	path   string
	text   string
	syntax *ast.File
	file   *token.File
}

// sources are the packages' files that a resolver has read, by folder.
type sources struct {
	root    string
	folders map[string][]*sourceFile
}

// files returns the files of a package without its tests.
func (s *sources) files(folder string) ([]*sourceFile, error) {
	if files, ok := s.folders[folder]; ok {
		return files, nil
	}
	paths, err := filepath.Glob(filepath.Join(s.root, filepath.FromSlash(folder), "*.go"))
	if err != nil {
		return nil, err
	}
	var files []*sourceFile
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parseSource(path, string(text))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	s.folders[folder] = files
	return files, nil
}

func parseSource(path, text string) (*sourceFile, error) {
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	return &sourceFile{path: path, text: text, syntax: syntax, file: fset.File(syntax.FileStart)}, nil
}

// resolve returns the file and the offset of the statement that an anchor names.
func (s *sources) resolve(a anchor) (*sourceFile, int, error) {
	files, err := s.files(a.folder)
	if err != nil {
		return nil, 0, err
	}
	return resolve(files, a)
}

func resolve(files []*sourceFile, a anchor) (in *sourceFile, offset int, err error) {
	var body *ast.BlockStmt
	for _, f := range files {
		for _, found := range functionBodies(f.syntax, a.function) {
			if body != nil {
				return nil, 0, fmt.Errorf("%v: there are several such functions", a)
			}
			in, body = f, found
		}
	}
	if body == nil {
		return nil, 0, fmt.Errorf("%v: there is no such function", a)
	}
	var places []ast.Stmt
	if a.kind == "entry" && len(body.List) > 0 {
		places = body.List[:1]
	} else {
		places = statementsAt(body, a.kind, a.name)
	}
	number := max(1, a.number)
	if a.number == 0 && len(places) > 1 {
		return nil, 0, fmt.Errorf("%v: there are %d such places: choose one, like #2", a, len(places))
	}
	if number > len(places) {
		return nil, 0, fmt.Errorf("%v: there are %d such places", a, len(places))
	}
	return in, in.file.Offset(places[number-1].Pos()), nil
}

// functionBodies returns the bodies of the functions with a name in a file.
func functionBodies(f *ast.File, name string) (bodies []*ast.BlockStmt) {
	for _, decl := range f.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if declaredName(decl) == name && decl.Body != nil {
				bodies = append(bodies, decl.Body)
			}
		case *ast.GenDecl:
			variable, field, ok := strings.Cut(name, ".")
			if !ok {
				continue
			}
			for _, spec := range decl.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok && len(v.Names) == 1 && v.Names[0].Name == variable && len(v.Values) == 1 {
					bodies = append(bodies, literalsIn(v.Values[0], field)...)
				}
			}
		}
	}
	return bodies
}

// declaredName returns a function's name as an anchor has it: "f", "(T).m" or "(*T).m".
func declaredName(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver, star := fn.Recv.List[0].Type, ""
	if pointer, ok := receiver.(*ast.StarExpr); ok {
		receiver, star = pointer.X, "*"
	}
	return "(" + star + lastName(receiver) + ")." + fn.Name.Name
}

// literalsIn returns the bodies of the function literals that stand as a field in a composite literal.
func literalsIn(value ast.Expr, field string) (bodies []*ast.BlockStmt) {
	literal, ok := value.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok || lastName(pair.Key) != field {
			continue
		}
		if fn, ok := pair.Value.(*ast.FuncLit); ok {
			bodies = append(bodies, fn.Body)
		}
	}
	return bodies
}

// statementsAt returns, for each place of a kind that mentions a name, the statement before which another can be inserted.
func statementsAt(body *ast.BlockStmt, kind, name string) (places []ast.Stmt) {
	var stack []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		if isPlace(n, kind, name) {
			places = append(places, listed(stack))
		}
		return true
	})
	return places
}

// listed returns the innermost node of a stack that stands in a list of statements. The clauses of a switch or select
// stand in a block too, but nothing can be inserted between them.
func listed(stack []ast.Node) ast.Stmt {
	for i := len(stack) - 1; i > 0; i-- {
		var list []ast.Stmt
		switch parent := stack[i-1].(type) {
		case *ast.BlockStmt:
			list = parent.List
		case *ast.CaseClause:
			list = parent.Body
		case *ast.CommClause:
			list = parent.Body
		}
		statement, ok := stack[i].(ast.Stmt)
		if !ok || !slices.Contains(list, statement) {
			continue
		}
		switch statement.(type) {
		case *ast.CaseClause, *ast.CommClause:
		default:
			return statement
		}
	}
	return nil // not reached: the function's body is the outermost node
}

func isPlace(n ast.Node, kind, name string) bool {
	switch n := n.(type) {
	case *ast.ReturnStmt:
		return kind == "return" && mentions(name, n)
	case *ast.IfStmt:
		return kind == "if" && mentions(name, n.Init, n.Cond)
	case *ast.ForStmt:
		return kind == "for" && mentions(name, n.Init, n.Cond, n.Post)
	case *ast.RangeStmt:
		return kind == "for" && mentions(name, n.Key, n.Value, n.X)
	case *ast.CallExpr:
		return kind == "call" && (name == "" || lastName(n.Fun) == name)
	case *ast.IncDecStmt:
		return kind == "assign" && (name == "" || lastName(n.X) == name)
	case *ast.AssignStmt:
		return kind == "assign" && (name == "" || slices.ContainsFunc(n.Lhs, func(e ast.Expr) bool { return lastName(e) == name }))
	}
	return false
}

// mentions reports whether one of some nodes, of which any may be nil, uses a name; every node uses "".
func mentions(name string, nodes ...ast.Node) bool {
	found := name == ""
	for _, n := range nodes {
		if n == nil {
			continue
		}
		ast.Inspect(n, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			found = found || ok && id.Name == name
			return true
		})
	}
	return found
}

// lastName returns the name at the end of an expression: c of a.b.c, *c, c[0] and c[T].
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.StarExpr:
		return lastName(e.X)
	case *ast.ParenExpr:
		return lastName(e.X)
	case *ast.IndexExpr:
		return lastName(e.X)
	}
	return ""
}

// importName finds the usual name of a package in its path: the last part that is no version.
var importName = regexp.MustCompile(`([^/]+)(/v[0-9]+)?$`)

// missingImports returns the packages that a statement uses and a file does not import. It takes their paths from the
// other files of the package.
func missingImports(in *sourceFile, files []*sourceFile, statement string) (paths []string, err error) {
	probe, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() { "+statement+" }\n", parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("%q is not a statement: %w", statement, err)
	}
	known := make(map[string]string)
	for _, f := range append(slices.Clone(files), in) {
		for _, spec := range f.syntax.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return nil, err
			}
			name := importName.FindStringSubmatch(path)[1]
			if spec.Name != nil {
				name = spec.Name.Name
			}
			if known[name] = name + " " + spec.Path.Value; f == in {
				known[name] = ""
			}
		}
	}
	ast.Inspect(probe, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && known[id.Name] != "" {
				paths = append(paths, known[id.Name])
				known[id.Name] = ""
			}
		}
		return true
	})
	return paths, nil
}

// Each place of each mutant exists once, so that a mutant that no longer breaks anything is noticed without running it.
func TestMutantsHaveTheirPlaces(t *testing.T) {
	mutants := readMutants(t)
	if len(mutants) < 10 {
		t.Fatalf("found only %d mutants", len(mutants))
	}
	s := productSources()
	for _, m := range mutants {
		if m.why == "" || len(m.places) == 0 {
			t.Errorf("mutant %q lacks a reason or a place", m.name)
		}
		for _, p := range m.places {
			in, _, err := s.resolve(p.anchor)
			if err != nil {
				t.Errorf("mutant %q: %v", m.name, err)
				continue
			}
			if !strings.Contains(p.insert, "mutated") {
				t.Errorf("mutant %q: %q acts in every world", m.name, p.insert)
			}
			if _, err := missingImports(in, s.folders[p.folder], p.insert); err != nil {
				t.Errorf("mutant %q: %v", m.name, err)
			}
		}
	}
}

func TestAnchorsNameStatements(t *testing.T) {
	const text = `package a

type T struct{ n, m int }

var rules = struct{ one, two func(int) bool }{
	one: func(n int) bool { return n == 1 },
	two: func(n int) bool { return n == 2 },
}

func (t *T) f(list []int) int {
	first := g(t.n)
	for _, x := range list {
		if x > first {
			t.n++
		} else if y := g(x); y > 0 {
			t.m, t.n = y, x
		}
	}
	switch g(1) {
	case g(2):
		g(3)
		return t.m
	}
	h := func() int { return g(4) }
	return h() + t.n
}

func g(n int) int {
	return n
}

func (t T) g() {}
`
	f, err := parseSource("a/x.go", text)
	if err != nil {
		t.Fatal(err)
	}
	files := []*sourceFile{f}
	for _, c := range []struct{ function, at, statement string }{
		{"(*T).f", "entry", "first := g(t.n)"},
		{"(*T).f", "assign first", "first := g(t.n)"},
		{"(*T).f", "for", "for _, x := range list"},
		{"(*T).f", "if #1", "if x > first"},
		{"(*T).f", "if first", "if x > first"},
		{"(*T).f", "if y", "if x > first"}, // the whole statement: nothing can be inserted before an else
		{"(*T).f", "assign n #1", "t.n++"},
		{"(*T).f", "assign n #2", "t.m, t.n = y, x"},
		{"(*T).f", "assign m", "t.m, t.n = y, x"},
		{"(*T).f", "call g #1", "first := g(t.n)"},
		{"(*T).f", "call g #2", "if x > first"},
		{"(*T).f", "call g #3", "switch g(1)"},
		{"(*T).f", "call g #4", "switch g(1)"},
		{"(*T).f", "call g #5", "g(3)"},
		{"(*T).f", "call g #6", "return g(4)"},
		{"(*T).f", "return m", "return t.m"},
		{"(*T).f", "return #3", "return h() + t.n"},
		{"g", "return", "return n"},
		{"rules.two", "entry", "return n == 2"},
	} {
		a, err := parseAnchor("a "+c.function, c.at)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, offset, err := resolve(files, a); err != nil || !strings.HasPrefix(text[offset:], c.statement) {
			t.Errorf("%v is at %q (%v), want %q", a, text[offset:min(offset+20, len(text))], err, c.statement)
		}
	}
	for _, c := range []struct{ function, at string }{
		{"(*T).f", "return"}, {"(*T).f", "return gone"}, {"(*T).f", "call g #7"}, {"(*T).f", "call g"}, {"(*T).gone", "entry"},
		{"(T).f", "entry"}, {"rules.three", "entry"}, {"other.two", "entry"}, {"(T).g", "entry"},
	} {
		a, err := parseAnchor("a "+c.function, c.at)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, offset, err := resolve(files, a); err == nil {
			t.Errorf("%v is at %q, want an error", a, text[offset:])
		}
	}
	if _, _, err := resolve([]*sourceFile{f, f}, anchor{folder: "a", function: "g", kind: "entry"}); err == nil {
		t.Error("a function that exists twice has one place")
	}
	for _, bad := range [][2]string{{"a", "entry"}, {"a g", ""}, {"a g", "enter"}, {"a g", "call g 2"}, {"a g", "call g #0"}, {"a g", "call g #1 #2"}} {
		if a, err := parseAnchor(bad[0], bad[1]); err == nil {
			t.Errorf("%q and %q are the anchor %v", bad[0], bad[1], a)
		}
	}
}

func TestMissingImportsAreFound(t *testing.T) {
	one, err := parseSource("a/one.go", "package a\n\nimport \"fmt\"\n")
	if err != nil {
		t.Fatal(err)
	}
	other, err := parseSource("a/other.go", "package a\n\nimport (\n\t\"fmt\"\n\tm \"go/ast\"\n\t\"go/token\"\n\t\"example.org/pebble/v2\"\n)\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := missingImports(one, []*sourceFile{one, other}, `fmt.Print(m.Print, m.Walk, x.token, pebble.Sync); return`)
	if err != nil || !slices.Equal(got, []string{`m "go/ast"`, `pebble "example.org/pebble/v2"`}) {
		t.Errorf("missing are %q (%v)", got, err)
	}
}
