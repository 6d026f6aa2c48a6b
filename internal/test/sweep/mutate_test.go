package sweep

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutant is one guard of a package, made ineffective. Its number, from 1, chooses it in the test binary.
type mutant struct {
	number   int
	function string // as in "Lessor.Grant"
	change   string // what differs, in terms of the source
	place    string // file and line, for the reader
}

// key identifies a mutant over changes elsewhere in the package.
func (m mutant) key() string { return m.function + ": " + m.change }

// edit puts text into a source, at a byte offset.
type edit struct {
	offset int
	text   string
}

// mutation finds the mutants of one package.
type mutation struct {
	fset    *token.FileSet
	source  []byte // of the file at hand
	edits   []edit // of the file at hand
	mutants []mutant
	seen    map[string]int           // how often a key has occurred
	inner   map[*ast.BinaryExpr]bool // parts of a chain that was found whole
}

// mutate returns the mutants of the package in a folder, and its files with all of them, by absolute path.
func mutate(folder string) ([]mutant, map[string][]byte, error) {
	pkg, err := build.ImportDir(folder, 0)
	if err != nil {
		return nil, nil, err
	}
	m := &mutation{fset: token.NewFileSet(), seen: make(map[string]int), inner: make(map[*ast.BinaryExpr]bool)}
	texts := make(map[string][]byte)
	for _, name := range pkg.GoFiles {
		path, err := filepath.Abs(filepath.Join(folder, name))
		if err != nil {
			return nil, nil, err
		}
		if m.source, err = os.ReadFile(path); err != nil {
			return nil, nil, err
		}
		file, err := parser.ParseFile(m.fset, path, m.source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		if ast.IsGenerated(file) {
			continue
		}
		m.edits = nil
		for _, decl := range file.Decls {
			m.declaration(decl)
		}
		if len(m.edits) > 0 {
			texts[path] = m.rewritten()
		}
	}
	path, err := filepath.Abs(filepath.Join(folder, "swept.go"))
	texts[path] = fmt.Appendf(nil, switchSource, pkg.Name, len(m.mutants)+1)
	return m.mutants, texts, err
}

// switchSource is the file that a swept package contains besides its own.
const switchSource = `package %s

import ("os"; "strconv"; "sync/atomic")

var (
	sweptMutant, _ = strconv.Atoi(os.Getenv("` + mutantVariable + `"))
	sweptTrace = os.Getenv("` + traceVariable + `")
	sweptSeen [%d]atomic.Bool
)

// swept returns value, or instead if the mutant with this number is chosen.
func swept(number int, value, instead bool) bool {
	if value == instead {
		return value
	}
	if sweptTrace != "" && !sweptSeen[number].Swap(true) {
		f, err := os.OpenFile(sweptTrace, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		f.WriteString(strconv.Itoa(number) + "\n")
		f.Close()
	}
	return (number == sweptMutant) != value
}
`

// These variables choose a mutant by its number, and name the file that receives the numbers of mutants that differ.
const (
	mutantVariable = "LEASEKEEPER_SWEEP_MUTANT"
	traceVariable  = "LEASEKEEPER_SWEEP_TRACE"
)

// declaration finds the mutants of a function, or of functions in the value of a variable.
func (m *mutation) declaration(decl ast.Decl) {
	name := ""
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		name = decl.Name.Name
		if decl.Recv != nil {
			name = receiver(decl.Recv.List[0].Type) + "." + name
		}
	case *ast.GenDecl:
		value, ok := decl.Specs[0].(*ast.ValueSpec)
		if !ok || decl.Tok != token.VAR {
			return
		}
		name = value.Names[0].Name
	}
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			if panics(n.Body.List) {
				if n.Else != nil {
					ast.Inspect(n.Else, visit)
				}
				return false
			}
			if leaves(n.Body.List) {
				m.add(name, n.Cond, "false", "never if "+m.text(n.Cond))
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				m.cases(name, n)
			}
		case *ast.BinaryExpr:
			m.operands(name, n, nil)
		}
		return true
	}
	ast.Inspect(decl, visit)
}

// receiver returns the name of a receiver's type.
func receiver(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return receiver(t.X)
	case *ast.IndexExpr:
		return receiver(t.X)
	case *ast.IndexListExpr:
		return receiver(t.X)
	case *ast.Ident:
		return t.Name
	}
	return "?"
}

// leaves says whether a body ends by leaving what surrounds it.
func leaves(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	switch last := body[len(body)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	case *ast.BlockStmt:
		return leaves(last.List)
	}
	return false
}

// panics says whether a body ends with panic.
func panics(body []ast.Stmt) bool {
	if len(body) == 0 {
		return false
	}
	statement, ok := body[len(body)-1].(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	name, ok := call.Fun.(*ast.Ident)
	return ok && name.Name == "panic"
}

// cases finds the guards among the cases of a switch without a value.
func (m *mutation) cases(function string, n *ast.SwitchStmt) {
	for _, clause := range n.Body.List {
		clause := clause.(*ast.CaseClause)
		if !leaves(clause.Body) {
			continue
		}
		for _, condition := range clause.List {
			m.add(function, condition, "false", "never case "+m.text(condition))
		}
	}
}

// operands finds the operands of a chain of && or of ||. A chain is one expression: its inner nodes come here by whole.
func (m *mutation) operands(function string, n *ast.BinaryExpr, whole *ast.BinaryExpr) {
	neutral := map[token.Token]string{token.LAND: "true", token.LOR: "false"}[n.Op]
	if neutral == "" || whole == nil && m.inner[n] {
		return
	}
	whole = cmp.Or(whole, n)
	for _, side := range []ast.Expr{n.X, n.Y} {
		if chained, ok := side.(*ast.BinaryExpr); ok && chained.Op == n.Op {
			m.inner[chained] = true
			m.operands(function, chained, whole)
			continue
		}
		m.add(function, side, neutral, "without "+m.text(side)+" of "+m.text(whole))
	}
}

// text is an expression on one line.
func (m *mutation) text(e ast.Expr) string {
	text := m.source[m.fset.Position(e.Pos()).Offset:m.fset.Position(e.End()).Offset]
	return string(bytes.Join(bytes.Fields(text), []byte(" ")))
}

// add makes a mutant of an expression that then always has the value instead.
func (m *mutation) add(function string, e ast.Expr, instead, change string) {
	n := mutant{number: len(m.mutants) + 1, function: function, change: change}
	m.seen[n.key()]++
	if times := m.seen[n.key()]; times > 1 {
		n.change = fmt.Sprintf("%s (%d)", change, times)
	}
	at := m.fset.Position(e.Pos())
	n.place = fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line)
	m.mutants = append(m.mutants, n)
	m.edits = append(m.edits,
		edit{at.Offset, fmt.Sprintf("swept(%d, ", n.number)},
		edit{m.fset.Position(e.End()).Offset, ", " + instead + ")"})
}

// rewritten is the source of the file at hand with its edits. Lines keep their numbers.
func (m *mutation) rewritten() []byte {
	// Of two edits at one offset the outer expression's comes first where both begin, and last where both end. Outer
	// expressions were found first.
	var opening, closing []edit
	for i, e := range m.edits {
		if i%2 == 0 {
			opening = append(opening, e)
		} else {
			closing = append([]edit{e}, closing...)
		}
	}
	all := append(closing, opening...) // a closing edit comes before an opening one at its offset
	slices.SortStableFunc(all, func(a, b edit) int { return a.offset - b.offset })
	var text bytes.Buffer
	from := 0
	for _, e := range all {
		text.Write(m.source[from:e.offset])
		text.WriteString(e.text)
		from = e.offset
	}
	text.Write(m.source[from:])
	return text.Bytes()
}

// writeOverlay writes files into a folder, and next to them what tells the go command to take them instead of the true ones.
func writeOverlay(t *testing.T, folder string, texts map[string][]byte) string {
	t.Helper()
	replace := make(map[string]string)
	for path, text := range texts {
		replace[path] = filepath.Join(folder, strings.ReplaceAll(filepath.Base(path), ".go", ".swept.go"))
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
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
