package archtest

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
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
	// quoted finds text that cites nothing: code spans, quotations, and the addresses of links.
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

// joins reports whether a byte next to a code makes it part of a longer name.
func joins(b byte) bool {
	return b == '_' || b == '$' || b == '%' || b == '#' ||
		'0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

// definedCodes returns the codes that pages define, and the wrong definitions.
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

// comment is a block of comments: its place, and its lines.
type comment struct {
	file  string
	line  int // of the first of lines
	lines []string
}

func (c comment) text() string { return strings.Join(c.lines, "\n") }

// folder is the package that the comment belongs to.
func (c comment) folder() string {
	folder, _, _ := strings.Cut(path.Dir(c.file), "/testdata")
	return folder
}

// goComments returns the groups of comments in all Go files but generated ones.
func goComments(t *tree) (all []comment) {
	for _, f := range t.files {
		if f.generated() {
			continue
		}
		for _, group := range f.ast.Comments {
			next := comment{file: f.path, line: t.fset.Position(group.Pos()).Line}
			for _, c := range group.List {
				for at := t.fset.Position(c.Pos()).Line - next.line; len(next.lines) < at; {
					next.lines = append(next.lines, "")
				}
				next.lines = append(next.lines, strings.Split(c.Text, "\n")...)
			}
			all = append(all, next)
		}
	}
	return all
}

// textComments returns the blocks of lines that begin with a mark, in a file that is not Go.
func textComments(file, text, mark string) (all []comment) {
	before := -1
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, mark) {
			continue
		}
		if before < 0 || before != i-1 {
			all = append(all, comment{file: file, line: i + 1})
		}
		last := &all[len(all)-1]
		last.lines = append(last.lines, line)
		before = i
	}
	return all
}

// otherComments returns the comments of protocol files, and those of the files in testdata.
func otherComments(t *testing.T) (all []comment) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if strings.HasPrefix(entry.Name(), ".") && name != root {
				return filepath.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		mark := ""
		switch relative = filepath.ToSlash(relative); {
		case strings.HasSuffix(relative, ".proto"):
			mark = "//"
		case strings.Contains(relative, "/testdata/") && !strings.Contains(relative, "/testdata/fuzz/"):
			mark = "#"
		default:
			return nil
		}
		text, err := os.ReadFile(name)
		all = append(all, textComments(relative, string(text), mark)...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// undefinedCodes finds citations, in comments and in the prose of pages, of codes that no page defines.
func undefinedCodes(comments []comment, pages map[string]string) []breach {
	defined, found := definedCodes(pages)
	cite := func(where, line string) {
		for _, code := range codesIn(line) {
			if !defined[code] {
				found = append(found, breach{where, "cites " + code + ", which " + codeFamilies[code[:1]] + " does not define"})
			}
		}
	}
	for _, c := range comments {
		for i, line := range c.lines {
			cite(fmt.Sprintf("%s:%d", c.file, c.line+i), line)
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

// pagelessCodes finds comments that cite a code although neither they nor the package's doc.go name the page that defines
// it. A reader of such a comment does not know where to look.
func pagelessCodes(comments []comment) []breach {
	docs := make(map[string]string) // by folder
	for _, c := range comments {
		if path.Base(c.file) == "doc.go" {
			docs[c.folder()] += c.text()
		}
	}
	var found []breach
	for _, c := range comments {
		for i, line := range c.lines {
			for _, code := range codesIn(line) {
				page := path.Base(codeFamilies[code[:1]])
				if !strings.Contains(c.text(), page) && !strings.Contains(docs[c.folder()], page) {
					found = append(found, breach{fmt.Sprintf("%s:%d", c.file, c.line+i), "cites " + code + ": name " + codeFamilies[code[:1]] + " in this comment or in the package's doc.go"})
				}
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
	comments, pages := append(goComments(repository(t)), otherComments(t)...), repositoryPages(t)
	holds(t, undefinedCodes(comments, pages))
	defined, _ := definedCodes(pages)
	for family, page := range codeFamilies {
		if !defined[family+"1"] {
			t.Errorf("%s defines no code of the family %s", page, family)
		}
	}
}

func TestCodesAreCitedWithTheirPages(t *testing.T) {
	comments := append(goComments(repository(t)), otherComments(t)...)
	holds(t, pagelessCodes(comments))
}

func TestCodesWithoutPagesAreCaught(t *testing.T) {
	with := func(doc, body string) []breach {
		return pagelessCodes(goComments(example(t, "a/doc.go", "// Package a is.\n"+doc+"package a\n", "a/x.go", "package a\n\n"+body+"\n", "b/doc.go", "// Package b has time-and-identity.md.\npackage b\n")))
	}
	catches(t, with("", "// f does it (T9).\nfunc f() {}"), "a/x.go:3", "name docs/design/time-and-identity.md")
	catches(t, with("// See guarantees.md.\n", "// f does\n// it (T9).\nfunc f() {}"), "a/x.go:4", "T9")
	holds(t, with("// See docs/design/time-and-identity.md.\n", "// f does it (T9).\nfunc f() {}"))
	holds(t, with("", "// f does it (T9 in\n// docs/design/time-and-identity.md).\nfunc f() {}"))
	text := textComments("a/testdata/x", "# one\nT9\n\n  # two\n# by T9\n", "#")
	catches(t, pagelessCodes(text), "a/testdata/x:5", "T9")
	holds(t, pagelessCodes(append(text, goComments(example(t, "a/doc.go", "// Package a has docs/design/time-and-identity.md.\npackage a\n"))...)))
	catches(t, undefinedCodes(text, nil), "a/testdata/x:5", "does not define")
}

// Every rule names the tests that guard it, like a promise.
func TestDesignRulesNameExistingTests(t *testing.T) {
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
	source := func(body string) []comment { return goComments(example(t, "a/x.go", "package a\n\n"+body+"\n")) }

	for _, text := range []string{
		"// f does it (T9).\nfunc f() {}", "// T9: it does.\nfunc f() {}", "func f() {\n\t_ = 1 // by T1 and T9.\n}",
		"/*\nf does it,\nas T9 says.\n*/\nfunc f() {}", "//\tT9   a list", "// T1–T9 hold.\nvar x int", "// T1 to T9\nvar x int",
	} {
		catches(t, undefinedCodes(source(text), pages("")), "a/x.go:", "cites T9, which "+rules+" does not define")
	}
	catches(t, undefinedCodes(source("// x\n\n/*\n\nC2*/\nvar x int"), pages("")), "a/x.go:7", "C2")
	catches(t, undefinedCodes(source("// As C1a says.\nvar x int"), pages("")), "a/x.go:3", "C1a")
	catches(t, undefinedCodes(goComments(example(t, "a/x_test.go", "package a\n\n// T9: one.\nfunc TestOne() {}\n")), pages("")), "a/x_test.go:3", "T9")
	for _, text := range []string{
		"T9", "(T9)", "**T9**", "| T9 | cell |", "[T9](page.md)", "[T1 to T9](page.md#x)", "end T9.", "by T9: so", "T9, T1", "```\nT8\n```\nT9",
	} {
		catches(t, undefinedCodes(nil, pages(text)), "page.md:", "T9")
	}

	holds(t, undefinedCodes(source("// T1 and C1, (C1, T1), C1: it. T1–C1\nvar x int"), pages("By T1, C1. [C1](x.md)\n")))
	holds(t, undefinedCodes(source("type g[T9 any] struct{ C9 T9 }\n\nvar G9 = \"T9\" + \"(T9)\""), pages("")))
	holds(t, undefinedCodes(source("// `T9`, \"T9\", TestT9Holds, T9id, xT9, T900, 0xC9, P256, T_9, T9_, x.T9, T9.Field, T9[int], T9(1), #C9C9C9, X9, HTTP 404\nvar x int"), pages("")))
	holds(t, undefinedCodes(nil, pages("`T9` [x](T9.md) https://example.org/T9 \"T9\"\n\n```go\nT9 := C9\n```\n")))
	holds(t, undefinedCodes(goComments(example(t, "a/x.pb.go", "package a\n\n// T9\nvar x int\n")), pages("")))

	catches(t, undefinedCodes(nil, pages("### T2. Elsewhere\n")), "page.md:1", "belongs in "+rules)
	catches(t, undefinedCodes(nil, pages("### X2. What is this\n")), "page.md:1", "family")
	twice := pages("")
	twice[rules] += "\n### T1. Again\n"
	catches(t, undefinedCodes(nil, twice), rules, "a second time")
	table := pages("")
	table[rules] = strings.Replace(table[rules], "### C1. ", "- **C1** ", 1)
	if got := undefinedCodes(nil, table); len(got) != 2 {
		t.Errorf("a code that is only mentioned counts as defined: %v", got)
	}
}
