package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// How long things may be, in lines.
const (
	fileBound     = 500
	functionBound = 60
)

// tooLong finds files and functions that are longer than their bounds.
func tooLong(t *tree) []breach {
	var found []breach
	long := func(where, what string, lines, bound int) {
		found = append(found, breach{where, fmt.Sprintf("%shas %d lines, more than %d", what, lines, bound)})
	}
	for _, f := range t.files {
		if f.isTest() || f.generated() {
			continue
		}
		if f.lines > fileBound {
			long(f.path, "", f.lines, fileBound)
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			if lines > functionBound {
				long(t.at(fn), fn.Name.Name+" ", lines, functionBound)
			}
		}
	}
	return found
}

func TestFilesAndFunctionsAreShort(t *testing.T) { holds(t, tooLong(repository(t))) }

func TestLengthIsCaught(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("// x\n", n) }
	file := example(t, "a/x.go", "package a\n"+lines(fileBound))
	catches(t, tooLong(file), "a/x.go", "has 501 lines")
	fn := "package a\n\nfunc f() {\n" + lines(functionBound-1) + "}\n"
	catches(t, tooLong(example(t, "a/x.go", fn)), "a/x.go:3", "f has 61 lines")
	holds(t, tooLong(example(t, "a/x.go", "package a\n"+lines(fileBound-1), "a/x_test.go", fn, "a/x.pb.go", fn)))
}

// packageBound is how many lines of code a package may have. Comments, blank lines, generated files and tests do not count.
const packageBound = 4000

// unbounded packages may be larger.
var unbounded = []string{"bench"} // it is one command of many scenarios, and no part of the product

// tooLarge finds packages that are larger than packageBound.
func tooLarge(t *tree) []breach {
	var found []breach
	folders := t.folders()
	for _, folder := range sortedKeys(folders) {
		code := 0
		for _, f := range folders[folder] {
			if !f.isTest() && !f.generated() {
				code += f.code
			}
		}
		if code > packageBound && !slices.Contains(unbounded, folder) {
			found = append(found, breach{folder, fmt.Sprintf("has %d lines of code, more than %d: move a part that has a border of its own into a package below", code, packageBound)})
		}
	}
	return found
}

func TestPackagesAreBounded(t *testing.T) { holds(t, tooLarge(repository(t))) }

func TestLargePackagesAreCaught(t *testing.T) {
	// vars are n lines of code, besides the line of the package clause; what stands between them is none.
	vars := func(n int) string {
		return "package a\n\n// x is x,\n// and more\n\n/*\nno code\n*/\n" + strings.Repeat("var _ = 1 // one\n\n", n)
	}
	sized := func(folder string, n int) *tree {
		return example(t, folder+"/x.go", vars(n-2), folder+"/y.go", vars(0), folder+"/x_test.go", vars(99), folder+"/x.pb.go", vars(99))
	}
	catches(t, tooLarge(sized("a", packageBound+1)), "a", "has 4001 lines of code, more than 4000: move")
	holds(t, tooLarge(sized("a", packageBound)))
	holds(t, tooLarge(sized("bench", packageBound+1)))
	catches(t, tooLarge(sized("bench/a", packageBound+1)), "bench/a", "more than 4000")
}

func TestLinesOfCodeAreCounted(t *testing.T) {
	for source, want := range map[string]int{
		"package a\n": 1,
		"// Package a.\npackage a // a\n\n/* x\n*/ var x = 1\n": 2,
		"package a\n\nvar x = `a\n\nb`; var y = `c\n`\n":        5,
		"package a\n\nfunc f() {\n\t// x\n\tf()\n\n}\n":         4,
	} {
		if got := linesOfCode([]byte(source)); got != want {
			t.Errorf("%q has %d lines of code; counted %d", source, want, got)
		}
	}
}

// emptyNames say nothing about what a package owns.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "managers"}

func badlyNamed(t *tree) []breach {
	var found []breach
	for folder, files := range t.folders() {
		name := strings.TrimSuffix(files[0].ast.Name.Name, "_test")
		last := folder[strings.LastIndex(folder, "/")+1:]
		if slices.Contains(emptyNames, name) || slices.Contains(emptyNames, last) {
			found = append(found, breach{folder, "package " + name + " is named after nothing: say what it owns"})
		}
	}
	return found
}

func TestPackageNamesSayWhatTheyOwn(t *testing.T) { holds(t, badlyNamed(repository(t))) }

func TestEmptyNamesAreCaught(t *testing.T) {
	for _, name := range emptyNames {
		catches(t, badlyNamed(example(t, "a/"+name+"/x.go", "package "+name+"\n")), "a/"+name, "named after nothing")
	}
	catches(t, badlyNamed(example(t, "a/b/x.go", "package util\n")), "a/b", "named after nothing")
}

// undocumented finds packages that do not introduce themselves. Generated packages need not.
func undocumented(t *tree) []breach {
	var found []breach
	for folder, files := range t.folders() {
		files = slices.DeleteFunc(files, (*file).generated)
		if len(files) == 0 {
			continue
		}
		name := strings.TrimSuffix(files[0].ast.Name.Name, "_test")
		want := "Package " + name + " "
		if name == "main" {
			want = "Command " + folder[strings.LastIndex(folder, "/")+1:] + " "
		}
		i := slices.IndexFunc(files, func(f *file) bool { return f.base() == "doc.go" })
		if i < 0 {
			found = append(found, breach{folder, "has no doc.go"})
		} else if !strings.HasPrefix(files[i].ast.Doc.Text(), want) {
			found = append(found, breach{files[i].path, "does not begin with " + want})
		}
	}
	return found
}

func TestPackagesHaveDocFiles(t *testing.T) { holds(t, undocumented(repository(t))) }

func TestMissingDocFileIsCaught(t *testing.T) {
	catches(t, undocumented(example(t, "a/x.go", "package a\n")), "a", "no doc.go")
	catches(t, undocumented(example(t, "a/doc.go", "// It is a.\npackage a\n")), "a/doc.go", "Package a")
	catches(t, undocumented(example(t, "cmd/a/doc.go", "// Package main is a.\npackage main\n")), "cmd/a/doc.go", "Command a")
	holds(t, undocumented(example(t, "a/doc.go", "// Package a is.\npackage a\n", "b/x.pb.go", "package b\n",
		"cmd/c/doc.go", "// Command c does.\npackage main\n")))
}
