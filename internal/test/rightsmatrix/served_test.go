package rightsmatrix

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sources are the packages that give patterns to multiplexers of HTTP requests, with the path below which these are served.
var sources = map[string]string{"../../../server": "", "../../webconsole": "/console"}

// served returns the patterns that the source gives to multiplexers of HTTP requests.
func served(t *testing.T) (patterns []string) {
	t.Helper()
	for dir, base := range sources {
		inspect(t, dir, func(file string, variables map[string][]string, n ast.Node) {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return
			}
			if f, ok := call.Fun.(*ast.SelectorExpr); !ok || f.Sel.Name != "Handle" && f.Sel.Name != "HandleFunc" {
				return
			}
			found := textsOf(call.Args[0], variables)
			if len(found) == 0 {
				t.Errorf("%s has a pattern that this test does not understand: let it be a constant, or end with a variable that ranges over constants", file)
			}
			for _, pattern := range found {
				patterns = append(patterns, below(base, pattern))
			}
		})
	}
	slices.Sort(patterns)
	return slices.Compact(patterns)
}

// pagesServed returns the paths of the console's pages, which one pattern serves.
func pagesServed(t *testing.T) (paths []string) {
	t.Helper()
	const dir = "../../webconsole"
	inspect(t, dir, func(_ string, _ map[string][]string, n ast.Node) {
		variable, ok := n.(*ast.ValueSpec)
		if !ok || variable.Names[0].Name != "pages" || len(variable.Values) != 1 {
			return
		}
		for _, element := range variable.Values[0].(*ast.CompositeLit).Elts {
			for _, path := range textsOf(element.(*ast.KeyValueExpr).Key, nil) {
				paths = append(paths, sources[dir]+path)
			}
		}
	})
	return paths
}

// inspect visits the source of a package and those below it. The visitor gets the texts over which each variable around a node
// ranges.
func inspect(t *testing.T, dir string, visit func(file string, variables map[string][]string, n ast.Node)) {
	t.Helper()
	wantOK(t, filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		variables := make(map[string][]string)
		ast.Inspect(parsed, func(n ast.Node) bool {
			if loop, ok := n.(*ast.RangeStmt); ok {
				if variable, ok := loop.Value.(*ast.Ident); ok {
					variables[variable.Name] = textsOf(loop.X, nil)
				}
			}
			visit(file, variables, n)
			return true
		})
		return nil
	}))
}

// textsOf returns the values that an expression may have, and nothing if it is not made of constants and variables.
func textsOf(e ast.Expr, variables map[string][]string) (texts []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil {
			return []string{text}
		}
	case *ast.Ident:
		return variables[e.Name]
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			found := textsOf(element, variables)
			if len(found) == 0 {
				return nil
			}
			texts = append(texts, found...)
		}
	case *ast.BinaryExpr:
		for _, left := range textsOf(e.X, variables) {
			for _, right := range textsOf(e.Y, variables) {
				texts = append(texts, left+right)
			}
		}
	}
	return texts
}

// below returns a pattern as it is below a path.
func below(base, pattern string) string {
	if method, path, ok := strings.Cut(pattern, " "); ok {
		return method + " " + base + path
	}
	return base + pattern
}

// TestEveryRouteHasARequest compares the requests and forms of this package with the patterns and pages of the source.
func TestEveryRouteHasARequest(t *testing.T) {
	tried := make(map[string]bool)
	for pattern := range elsewhere {
		tried[pattern] = true
	}
	paths := make(map[string]bool)
	for _, r := range requests {
		tried[r.pattern] = true
		path, _, _ := strings.Cut(r.path, "?")
		paths[path] = true
	}
	for _, f := range forms {
		tried["POST /console/"+f] = true
	}
	patterns := served(t)
	for _, pattern := range patterns {
		if !tried[pattern] {
			t.Errorf("the server has the route %q: add it to requests or forms, with what it needs", pattern)
		}
		delete(tried, pattern)
	}
	for pattern := range tried {
		t.Errorf("the server has no route %q", pattern)
	}
	pages := pagesServed(t)
	if len(pages) == 0 {
		t.Error("package webconsole has no pages")
	}
	for _, path := range pages {
		if !paths[path] {
			t.Errorf("the console has the page %s: add it to requests, with what it needs", path)
		}
	}
}
