package archtest

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const guarantees = "docs/guarantees.md"

var (
	promiseHeading = regexp.MustCompile(`(?m)^### `)
	testName       = regexp.MustCompile(`\bTest[A-Z]\w*`)
)

// unchecked finds promises in a page that name no test, and tests named there that do not exist. A promise
// is a heading of the third level with what follows it.
func unchecked(page string, tests map[string]bool) []breach {
	var found []breach
	for _, part := range promiseHeading.Split(page, -1)[1:] {
		title, _, _ := strings.Cut(part, "\n")
		if !testName.MatchString(part) {
			found = append(found, breach{title, "names no test that checks it"})
		}
	}
	for _, name := range testName.FindAllString(page, -1) {
		if !tests[name] {
			found = append(found, breach{name, "is named but does not exist"})
		}
	}
	return found
}

func testNames(t *tree) map[string]bool {
	names := make(map[string]bool)
	for _, f := range t.files {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.isTest() && fn.Recv == nil {
				names[fn.Name.Name] = true
			}
		}
	}
	return names
}

func TestPromisesNameExistingTests(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, guarantees))
	if err != nil {
		t.Fatal(err)
	}
	if !promiseHeading.Match(page) {
		t.Errorf("%s has no promises", guarantees)
	}
	holds(t, unchecked(string(page), testNames(repository(t))))
}

func TestUncheckedPromisesAreCaught(t *testing.T) {
	tests := testNames(example(t, "a/x_test.go", "package a\n\nfunc TestThere() {}\n", "a/x.go", "package a\n\nfunc TestElsewhere() {}\n"))
	catches(t, unchecked("# Page\n\n### One\n\nno test\n", tests), "One", "names no test")
	catches(t, unchecked("# Page\n\n### One\n\nTestGone\n", tests), "TestGone", "does not exist")
	catches(t, unchecked("# Page\n\n### One\n\nTestElsewhere\n", tests), "TestElsewhere", "does not exist")
	holds(t, unchecked("# Page\n\nnot promised\n\n### One\n\n`TestThere`\n\n### Two\n\nTestThere\n", tests))
}
