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

// longNotYet lists functions ("folder/file.go function") and files ("folder/file.go") that are still longer. It only ever
// gets shorter.
var longNotYet = []string{}

// tooLong finds long files and functions that the list does not name, and entries of the list that name none.
func tooLong(t *tree, list []string) []breach {
	var found []breach
	used := make(map[string]bool)
	long := func(where, entry, what string, lines, bound int) {
		if slices.Contains(list, entry) {
			used[entry] = true
		} else {
			found = append(found, breach{where, fmt.Sprintf("%shas %d lines, more than %d", what, lines, bound)})
		}
	}
	for _, f := range t.files {
		if f.isTest() || f.generated() {
			continue
		}
		if f.lines > fileBound {
			long(f.path, f.path, "", f.lines, fileBound)
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			if lines > functionBound {
				long(t.at(fn), f.path+" "+fn.Name.Name, fn.Name.Name+" ", lines, functionBound)
			}
		}
	}
	for _, entry := range list {
		if !used[entry] {
			found = append(found, breach{entry, "is not too long: remove it from longNotYet"})
		}
	}
	return found
}

func TestFilesAndFunctionsAreShort(t *testing.T) { holds(t, tooLong(repository(t), longNotYet)) }

func TestLengthIsCaught(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("// x\n", n) }
	file := example(t, "a/x.go", "package a\n"+lines(fileBound))
	catches(t, tooLong(file, nil), "a/x.go", "has 501 lines")
	fn := "package a\n\nfunc f() {\n" + lines(functionBound-1) + "}\n"
	catches(t, tooLong(example(t, "a/x.go", fn), nil), "a/x.go:3", "f has 61 lines")
	holds(t, tooLong(example(t, "a/x.go", "package a\n"+lines(fileBound-1), "a/x_test.go", fn, "a/x.pb.go", fn), nil))
	holds(t, tooLong(file, []string{"a/x.go"}))
	holds(t, tooLong(example(t, "a/x.go", fn), []string{"a/x.go f"}))
	catches(t, tooLong(file, []string{"a/x.go", "a/x.go f"}), "a/x.go f", "remove it")
}

// packageHard is how many lines of code a package may have. Comments, blank lines, generated files and tests do not count.
const packageHard = 4000

// unbounded packages may be larger.
var unbounded = []string{"bench"} // it is one command of many scenarios, and no part of the product

// shrinking are the packages that are above packageHard and being divided, with the number of lines that each had when
// this was last looked at. A number here only ever goes down.
var shrinking = map[string]int{}

// shrinkStep is by how much a package may shrink before its number in the list must follow.
const shrinkStep = 500

func tooLarge(t *tree, shrinking map[string]int) []breach {
	var found []breach
	folders := t.folders()
	for _, folder := range sortedKeys(folders) {
		code := 0
		for _, f := range folders[folder] {
			if !f.isTest() && !f.generated() {
				code += f.code
			}
		}
		bound, listed := shrinking[folder]
		switch {
		case slices.Contains(unbounded, folder):
		case !listed && code > packageHard:
			found = append(found, breach{folder, fmt.Sprintf("has %d lines of code, more than %d: move a part that has a border of its own into a package below", code, packageHard)})
		case listed && code > bound:
			found = append(found, breach{folder, fmt.Sprintf("has %d lines of code, more than the %d that it had: it must shrink to %d", code, bound, packageHard)})
		case listed && code <= packageHard:
			found = append(found, breach{folder, fmt.Sprintf("has %d lines of code, no more than %d: remove it from the list of shrinking packages", code, packageHard)})
		case listed && code <= bound-shrinkStep:
			found = append(found, breach{folder, fmt.Sprintf("has shrunk to %d lines of code: write this number into the list of shrinking packages", code)})
		}
	}
	for _, folder := range sortedKeys(shrinking) {
		if len(folders[folder]) == 0 {
			found = append(found, breach{folder, "does not exist: remove it from the list of shrinking packages"})
		}
	}
	return found
}

func TestPackagesAreBounded(t *testing.T) { holds(t, tooLarge(repository(t), shrinking)) }

func TestLargePackagesAreCaught(t *testing.T) {
	// vars are n lines of code, besides the line of the package clause; what stands between them is none.
	vars := func(n int) string {
		return "package a\n\n// x is x,\n// and more\n\n/*\nno code\n*/\n" + strings.Repeat("var _ = 1 // one\n\n", n)
	}
	sized := func(folder string, n int) *tree {
		return example(t, folder+"/x.go", vars(n-2), folder+"/y.go", vars(0), folder+"/x_test.go", vars(99), folder+"/x.pb.go", vars(99))
	}
	catches(t, tooLarge(sized("a", packageHard+1), nil), "a", "has 4001 lines of code, more than 4000: move")
	holds(t, tooLarge(sized("a", packageHard), nil))
	holds(t, tooLarge(sized("bench", packageHard+1), nil))
	catches(t, tooLarge(sized("bench/a", packageHard+1), nil), "bench/a", "more than 4000")

	listed := map[string]int{"a": 5000}
	holds(t, tooLarge(sized("a", 5000), listed))
	catches(t, tooLarge(sized("a", 5001), listed), "a", "more than the 5000")
	holds(t, tooLarge(sized("a", 5001-shrinkStep), listed))
	catches(t, tooLarge(sized("a", 5000-shrinkStep), listed), "a", "has shrunk to 4500")
	catches(t, tooLarge(sized("a", packageHard), listed), "a", "remove it")
	catches(t, tooLarge(example(t, "b/x.go", "package b\n"), listed), "a", "does not exist")
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
