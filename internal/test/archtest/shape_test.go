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
	fileSoft = 500 // is mentioned
	fileHard = 800
	funcHard = 70
)

func tooLong(t *tree) (long []breach, mention []string) {
	for _, f := range t.files {
		if f.isTest() || f.generated() {
			continue
		}
		switch {
		case f.lines > fileHard:
			long = append(long, breach{f.path, fmt.Sprintf("has %d lines, more than %d", f.lines, fileHard)})
		case f.lines > fileSoft:
			mention = append(mention, fmt.Sprintf("%s has %d lines; %d are enough for most", f.path, f.lines, fileSoft))
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			lines := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			if lines > funcHard {
				long = append(long, breach{t.at(fn), fmt.Sprintf("%s has %d lines, more than %d", fn.Name.Name, lines, funcHard)})
			}
		}
	}
	return long, mention
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	long, mention := tooLong(repository(t))
	for _, m := range mention {
		t.Log(m)
	}
	holds(t, long)
}

func TestLengthIsCaught(t *testing.T) {
	lines := func(n int) string { return strings.Repeat("// x\n", n) }
	long, _ := tooLong(example(t, "a/x.go", "package a\n"+lines(fileHard)))
	catches(t, long, "a/x.go", "801 lines")
	fn := "package a\n\nfunc f() {\n" + lines(funcHard-1) + "}\n"
	long, _ = tooLong(example(t, "a/x.go", fn))
	catches(t, long, "a/x.go:3", "f has 71 lines")
	long, mention := tooLong(example(t, "a/x.go", "package a\n"+lines(fileSoft), "a/x_test.go", fn, "a/x.pb.go", fn))
	holds(t, long)
	if len(mention) != 1 {
		t.Errorf("a file over the soft limit is mentioned %d times", len(mention))
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

func TestPackagesAreNamedAfterSomething(t *testing.T) { holds(t, badlyNamed(repository(t))) }

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

func TestPackagesIntroduceThemselves(t *testing.T) { holds(t, undocumented(repository(t))) }

func TestMissingIntroductionIsCaught(t *testing.T) {
	catches(t, undocumented(example(t, "a/x.go", "package a\n")), "a", "no doc.go")
	catches(t, undocumented(example(t, "a/doc.go", "// It is a.\npackage a\n")), "a/doc.go", "Package a")
	catches(t, undocumented(example(t, "cmd/a/doc.go", "// Package main is a.\npackage main\n")), "cmd/a/doc.go", "Command a")
	holds(t, undocumented(example(t, "a/doc.go", "// Package a is.\npackage a\n", "b/x.pb.go", "package b\n",
		"cmd/c/doc.go", "// Command c does.\npackage main\n")))
}
