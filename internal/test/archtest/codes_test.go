package archtest

import (
	"fmt"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// codeFamilies maps the letter of each family of codes to the page that defines its codes. A definition is a heading of
// the third level that begins with the code: "### C1. A holder counts from before the first send".
var codeFamilies = map[string]string{
	"P": guarantees,
	"T": "docs/design/time-and-identity.md",
	"C": "docs/design/time-and-identity.md",
	"G": "docs/design/time-and-identity.md",
	"F": "docs/design/master-leases.md",
	"L": "docs/design/master-leases.md",
	"E": "docs/design/master-leases.md",
	"I": "docs/design/master-leases.md",
	"B": "docs/design/earlier-defects.md",
	"S": "docs/design/earlier-defects.md",
}

var (
	codeDefinition = regexp.MustCompile(`^### ([A-Z][0-9]+[a-z]?)\. `)
	codeLike       = regexp.MustCompile(`[A-Z][1-9][0-9]?[a-z]?`)
	// quoted is what is named and not said: code spans, quotations, and the addresses of links.
	quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"|\\]\\([^)]*\\)|https?://\\S+")
)

// codesIn returns the codes of declared families that a line of prose cites. Parts of longer words and of numbers, such
// as G1id, x.G1, TestC1, 0xC1 or P256, are no codes.
func codesIn(line string) []string {
	line = quoted.ReplaceAllStringFunc(line, func(s string) string { return strings.Repeat("`", len(s)) })
	var codes []string
	for _, at := range codeLike.FindAllStringIndex(line, -1) {
		code := line[at[0]:at[1]]
		before, after := line[:at[0]], line[at[1]:]
		inWord := before != "" && joins(before[len(before)-1]) || after != "" && (joins(after[0]) || after[0] == '(' || after[0] == '[')
		selected := len(after) > 1 && after[0] == '.' && joins(after[1]) || len(before) > 1 && before[len(before)-1] == '.' && joins(before[len(before)-2])
		if codeFamilies[code[:1]] != "" && !inWord && !selected {
			codes = append(codes, code)
		}
	}
	return codes
}

// joins reports whether a byte beside a code makes it part of a longer name.
func joins(b byte) bool {
	return b == '_' || b == '$' || b == '%' || b == '#' ||
		'0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// definedCodes returns the codes that pages define, and what is wrong with definitions.
func definedCodes(pages map[string]string) (map[string]bool, []breach) {
	defined := make(map[string]bool)
	var found []breach
	for _, page := range sortedKeys(pages) {
		for i, line := range strings.Split(pages[page], "\n") {
			match := codeDefinition.FindStringSubmatch(line)
			if match == nil {
				continue
			}
			code, where := match[1], fmt.Sprintf("%s:%d", page, i+1)
			switch home := codeFamilies[code[:1]]; {
			case home == "":
				found = append(found, breach{where, "defines " + code + " of a family that codeFamilies does not have"})
			case home != page:
				found = append(found, breach{where, "defines " + code + ", which belongs in " + home})
			case defined[code]:
				found = append(found, breach{where, "defines " + code + " a second time"})
			}
			defined[code] = true
		}
	}
	return defined, found
}

// undefinedCodes finds citations, in comments of Go files and in the prose of pages, of codes that no page defines.
func undefinedCodes(t *tree, pages map[string]string) []breach {
	defined, found := definedCodes(pages)
	cite := func(where, line string) {
		for _, code := range codesIn(line) {
			if !defined[code] {
				found = append(found, breach{where, "cites " + code + ", which " + codeFamilies[code[:1]] + " does not define"})
			}
		}
	}
	for _, f := range t.files {
		if f.generated() {
			continue
		}
		for _, group := range f.ast.Comments {
			for _, comment := range group.List {
				start := t.fset.Position(comment.Pos())
				for i, line := range strings.Split(comment.Text, "\n") {
					cite(fmt.Sprintf("%s:%d", f.path, start.Line+i), line)
				}
			}
		}
	}
	for _, page := range sortedKeys(pages) {
		fenced := false
		for i, line := range strings.Split(pages[page], "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
			} else if !fenced {
				cite(fmt.Sprintf("%s:%d", page, i+1), line)
			}
		}
	}
	return found
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// repositoryPages reads every page of the repository.
func repositoryPages(t *testing.T) map[string]string {
	t.Helper()
	pages := make(map[string]string)
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if hidden := strings.HasPrefix(entry.Name(), ".") && name != root; hidden || entry.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		pages[filepath.ToSlash(relative)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

func TestCitedCodesAreDefined(t *testing.T) {
	all, pages := repository(t), repositoryPages(t)
	holds(t, undefinedCodes(all, pages))
	defined, _ := definedCodes(pages)
	for family, page := range codeFamilies {
		if !defined[family+"1"] {
			t.Errorf("%s defines no code of the family %s", page, family)
		}
	}
}

// Every rule names the tests that guard it, like a promise.
func TestRulesAreChecked(t *testing.T) {
	tests, pages := testNames(repository(t)), repositoryPages(t)
	for _, page := range sortedKeys(pages) {
		if strings.HasPrefix(page, "docs/design/") {
			for _, b := range unchecked(pages[page], tests) {
				t.Errorf("%s: %v", page, b)
			}
		}
	}
}

func TestUndefinedCodesAreCaught(t *testing.T) {
	const rules = "docs/design/time-and-identity.md"
	pages := func(text string) map[string]string {
		return map[string]string{
			rules:     "# Rules\n\n### T1. One\n\nSee C1.\n\n### C1. Another\n\nIt follows from T1.\n",
			"page.md": text,
		}
	}
	empty := &tree{fset: token.NewFileSet()}
	source := func(body string) *tree { return example(t, "a/x.go", "package a\n\n"+body+"\n") }

	for _, text := range []string{
		"// f does it (T9).\nfunc f() {}", "// T9: it does.\nfunc f() {}", "func f() {\n\t_ = 1 // by T1 and T9.\n}",
		"/*\nf does it,\nas T9 says.\n*/\nfunc f() {}", "//\tT9   a list", "// T1–T9 hold.\nvar x int", "// T1 to T9\nvar x int",
	} {
		catches(t, undefinedCodes(source(text), pages("")), "a/x.go:", "cites T9, which "+rules+" does not define")
	}
	catches(t, undefinedCodes(source("// x\n\n/*\n\nC2*/\nvar x int"), pages("")), "a/x.go:7", "C2")
	catches(t, undefinedCodes(source("// As C1a says.\nvar x int"), pages("")), "a/x.go:3", "C1a")
	catches(t, undefinedCodes(example(t, "a/x_test.go", "package a\n\n// T9: one.\nfunc TestOne() {}\n"), pages("")), "a/x_test.go:3", "T9")
	for _, text := range []string{
		"T9", "(T9)", "**T9**", "| T9 | cell |", "[T9](page.md)", "[T1 to T9](page.md#x)", "end T9.", "by T9: so", "T9, T1", "```\nT8\n```\nT9",
	} {
		catches(t, undefinedCodes(empty, pages(text)), "page.md:", "T9")
	}

	holds(t, undefinedCodes(source("// T1 and C1, (C1, T1), C1: it. T1–C1\nvar x int"), pages("By T1, C1. [C1](x.md)\n")))
	holds(t, undefinedCodes(source("type g[T9 any] struct{ C9 T9 }\n\nvar G9 = \"T9\" + \"(T9)\""), pages("")))
	holds(t, undefinedCodes(source("// `T9`, \"T9\", TestT9Holds, T9id, xT9, T900, 0xC9, P256, T_9, T9_, x.T9, T9.Field, T9[int], T9(1), #C9C9C9, X9, HTTP 404\nvar x int"), pages("")))
	holds(t, undefinedCodes(empty, pages("`T9` [x](T9.md) https://example.org/T9 \"T9\"\n\n```go\nT9 := C9\n```\n")))
	holds(t, undefinedCodes(example(t, "a/x.pb.go", "package a\n\n// T9\nvar x int\n"), pages("")))

	catches(t, undefinedCodes(empty, pages("### T2. Elsewhere\n")), "page.md:1", "belongs in "+rules)
	catches(t, undefinedCodes(empty, pages("### X2. What is this\n")), "page.md:1", "family")
	twice := pages("")
	twice[rules] += "\n### T1. Again\n"
	catches(t, undefinedCodes(empty, twice), rules, "a second time")
	table := pages("")
	table[rules] = strings.Replace(table[rules], "### C1. ", "- **C1** ", 1)
	if got := undefinedCodes(empty, table); len(got) != 2 {
		t.Errorf("a code that is only mentioned counts as defined: %v", got)
	}
}
