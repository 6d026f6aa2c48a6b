package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/leasekeeper/leasekeeper"

// file is one Go file of the repository.
type file struct {
	path  string // from the root, with slashes
	lines int
	code  int // lines with more than comments and space
	ast   *ast.File
}

func (f *file) dir() string     { return path.Dir(f.path) }
func (f *file) base() string    { return path.Base(f.path) }
func (f *file) isTest() bool    { return strings.HasSuffix(f.path, "_test.go") }
func (f *file) generated() bool { return strings.HasSuffix(f.path, ".pb.go") || ast.IsGenerated(f.ast) }

// nested reports whether the file belongs to another module than the root's.
func (f *file) nested() bool {
	return within(f.path, "conformance") || within(f.path, "bench") || within(f.path, "contrib") || within(f.path, "release") || within(f.path, "internal/test/browser") || within(f.path, "internal/test/deploy") || within(f.path, "internal/test/ferrettest") || within(f.path, "internal/test/libpq") || within(f.path, "internal/test/otherlocks")
}

// within reports whether a path with slashes is a folder or lies below it.
func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// tree is the parsed repository, or an example.
type tree struct {
	fset  *token.FileSet
	files []*file // by path
}

// breach is one place that breaks a rule.
type breach struct {
	where string
	what  string
}

func (b breach) String() string { return b.where + ": " + b.what }

func (t *tree) at(n ast.Node) string {
	p := t.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

func (t *tree) add(name string, source []byte) error {
	parsed, err := parser.ParseFile(t.fset, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := strings.Count(string(source), "\n")
	t.files = append(t.files, &file{path: name, lines: lines, code: linesOfCode(source), ast: parsed})
	return nil
}

// linesOfCode counts the lines of a file that have a token. Comments are no tokens.
func linesOfCode(source []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines, last := 0, 0
	for {
		pos, tok, literal := s.Scan()
		switch {
		case tok == token.EOF:
			return lines
		case tok == token.SEMICOLON && literal == "\n": // the scanner's, at the end of a line
			continue
		}
		first := max(file.Line(pos), last+1)
		last = max(last, file.Line(pos)+strings.Count(literal, "\n"))
		lines += last - first + 1
	}
}

// folders returns the files by folder.
func (t *tree) folders() map[string][]*file {
	folders := make(map[string][]*file)
	for _, f := range t.files {
		folders[f.dir()] = append(folders[f.dir()], f)
	}
	return folders
}

// root is where the repository lies, seen from this package.
const root = "../../.."

// repository parses every Go file of the repository.
func repository(t *testing.T) *tree {
	t.Helper()
	all := &tree{fset: token.NewFileSet()}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if hidden := strings.HasPrefix(entry.Name(), ".") && relative != "."; hidden || entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		source, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return all.add(filepath.ToSlash(relative), source)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.files) < 10 {
		t.Fatalf("found only %d Go files from %s", len(all.files), root)
	}
	slices.SortFunc(all.files, func(a, b *file) int { return strings.Compare(a.path, b.path) })
	return all
}

// example makes a tree of a few files, given as pairs of path and source.
func example(t *testing.T, pairs ...string) *tree {
	t.Helper()
	all := &tree{fset: token.NewFileSet()}
	for i := 0; i < len(pairs); i += 2 {
		if err := all.add(pairs[i], []byte(pairs[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// holds fails the test for every breach.
func holds(t *testing.T, breaches []breach) {
	t.Helper()
	for _, b := range breaches {
		t.Error(b)
	}
}

// catches fails the test unless there is exactly one breach, its place begins with where, and its text contains what.
func catches(t *testing.T, breaches []breach, where, what string) {
	t.Helper()
	if len(breaches) != 1 {
		t.Fatalf("the example breaks the rule once in %s; found %d breaches: %v", where, len(breaches), breaches)
	}
	if b := breaches[0]; !strings.HasPrefix(b.where, where) || !strings.Contains(b.what, what) {
		t.Fatalf("found %q, want one in %s that contains %q", b, where, what)
	}
}
