package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wordsPage lists the refused words for people, so it is the one page that may hold them.
const wordsPage = "docs/contributing/language.md"

// refusal is an expression that no comment and no page uses, with the words to use in its place.
type refusal struct {
	words   string
	instead string
}

// refusals are wrong in every use. Expressions that have right uses too belong in the review list of wordsPage.
var refusals = []refusal{
	{"can not", "cannot"},
	{"anew", "again, or start over"},
	{"whoever", "the caller, the client, the holder, anyone who"},
	{"whosoever", "anyone who"},
	{"leave away", "omit"},
	{"of which there", "name the thing in a sentence of its own"},
	{"what is asked", "the request, the question"},
	{"he", "it for a program, they for a person"},
	{"him", "it for a program, them for a person"},
	{"his", "its for a program, their for a person"},
}

// pattern finds the words of a refusal in any case, also with a line break between them.
func (r refusal) pattern() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(r.words, " ", `\s+`) + `\b`)
}

var (
	codeFence  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	codeBlock  = regexp.MustCompile(`(?m)^(    |\t).*$`)
	codeSpan   = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	blockQuote = regexp.MustCompile(`(?m)^ *>.*$`)
	quotation  = regexp.MustCompile(`"[^"\n]*(\n[^"\n]+)?"|“[^”]*”`)

	commentMark   = regexp.MustCompile(`(?m)^\s*//|/\*|\*/`)
	commentCode   = regexp.MustCompile(`(?m)^  \t.*$`) // behind a mark that was blanked
	exampleOutput = regexp.MustCompile(`(?is)^\s*(unordered )?output:.*`)
)

// blank overwrites what each pattern finds with spaces, so that offsets and lines stay what they are.
func blank(text string, patterns ...*regexp.Regexp) string {
	for _, p := range patterns {
		text = p.ReplaceAllStringFunc(text, func(found string) string {
			return strings.Map(func(r rune) rune {
				if r == '\n' {
					return r
				}
				return ' '
			}, found)
		})
	}
	return text
}

// pageProse is a page of Markdown without its code and quotations.
func pageProse(page string) string {
	return blank(page, codeFence, codeBlock, codeSpan, linkTarget, blockQuote, quotation)
}

// commentProse is a group of comments without their marks, code and quotations. What an example is expected to
// print is no prose either.
func commentProse(comments string) string {
	text := blank(comments, commentMark)
	return blank(text, exampleOutput, commentCode, codeSpan, quotation)
}

// refusedWords finds refused words in prose that begins at a line of a file.
func refusedWords(file string, line int, prose string) []breach {
	var found []breach
	for _, r := range refusals {
		for _, at := range r.pattern().FindAllStringIndex(prose, -1) {
			where := fmt.Sprintf("%s:%d", file, line+strings.Count(prose[:at[0]], "\n"))
			found = append(found, breach{where, fmt.Sprintf("says %q: %s (%s)", prose[at[0]:at[1]], r.instead, wordsPage)})
		}
	}
	return found
}

// wordsInComments finds refused words in the comments of all files but generated ones.
func wordsInComments(t *tree) []breach {
	var found []breach
	for _, f := range t.files {
		if f.generated() {
			continue
		}
		for _, group := range f.ast.Comments {
			var text strings.Builder
			first := t.fset.Position(group.Pos()).Line
			line := first
			for _, c := range group.List {
				for at := t.fset.Position(c.Pos()).Line; line < at; line++ {
					text.WriteByte('\n')
				}
				text.WriteString(c.Text)
				line += strings.Count(c.Text, "\n")
			}
			found = append(found, refusedWords(f.path, first, commentProse(text.String()))...)
		}
	}
	return found
}

// pages reads every page of Markdown in the repository, by its path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
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
		if !strings.HasSuffix(name, ".md") {
			return nil
		}
		page, err := os.ReadFile(name)
		all[filepath.ToSlash(relative)] = string(page)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCommentsUseNoRefusedWords(t *testing.T) { holds(t, wordsInComments(repository(t))) }

func TestPagesUseNoRefusedWords(t *testing.T) {
	all := pages(t)
	if all["README.md"] == "" || all[wordsPage] == "" {
		t.Fatalf("README.md or %s was not found among %d pages", wordsPage, len(all))
	}
	for name, page := range all {
		if name != wordsPage {
			holds(t, refusedWords(name, 1, pageProse(page)))
		}
	}
}

func TestWordsPageListsEveryRefusedWord(t *testing.T) {
	page := pages(t)[wordsPage]
	for _, r := range refusals {
		if !strings.Contains(page, "`"+r.words+"`") {
			t.Errorf("%s does not list `%s`", wordsPage, r.words)
		}
	}
}

func TestRefusedWordsAreCaught(t *testing.T) {
	for _, r := range refusals {
		first, rest, _ := strings.Cut(r.words, " ")
		broken := strings.TrimSpace(first + "\n// " + rest)
		says := "says \"" + first
		comment := "package a\n\n// X says that\n// " + broken + "\n// ends.\nvar X int\n"
		catches(t, wordsInComments(example(t, "a/x.go", comment)), "a/x.go:4", says)
		catches(t, wordsInComments(example(t, "a/x.go", "package a\n\nvar X int // "+r.words+"\n")), "a/x.go:3", says)
		catches(t, refusedWords("a.md", 1, pageProse("# A\n\nOne `x` two\n"+strings.ReplaceAll(r.words, " ", "\n")+".\n")), "a.md:4", says)
		capital := strings.ToUpper(r.words[:1]) + r.words[1:]
		catches(t, refusedWords("a.md", 1, pageProse(capital+" says \"x\".\n")), "a.md:1", "says \""+strings.ToUpper(first[:1]))
	}
}

func TestRefusedWordsMayBeQuoted(t *testing.T) {
	for _, r := range refusals {
		for _, page := range []string{"`" + r.words + "`", "```\n" + r.words + "\n```", "    " + r.words, "> " + r.words,
			"It says \"x " + r.words + " y\".", "It says “" + r.words + "”.", "[x](" + r.words + ".md)", "a" + r.words + "b"} {
			holds(t, refusedWords("a.md", 1, pageProse(page+"\n")))
		}
		for _, comment := range []string{"// `" + r.words + "`", "// A says:\n//\n//\t" + r.words, "// It says \"" + r.words + "\".",
			"// Output:\n// " + r.words} {
			holds(t, wordsInComments(example(t, "a/x.go", "package a\n\n"+comment+"\nvar X int\n")))
		}
		holds(t, wordsInComments(example(t, "a/x.go", "package a\n\nconst x = `"+r.words+"`\n", "a/x.pb.go", "package a\n\n// "+r.words+"\n")))
	}
}
