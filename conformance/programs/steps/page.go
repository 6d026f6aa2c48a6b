package steps

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Section is a section of a page, with the sections below it.
type Section struct {
	t     testing.TB
	where string // the page and the title, for messages
	text  string
}

// Read returns the section of a page that has a title. The path is relative to the directory of the test.
func Read(t testing.TB, path, title string) Section {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var section strings.Builder
	level, fenced := 0, false // level: number of # before the title; 0 outside the section
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		if marks, heading, ok := strings.Cut(line, " "); ok && !fenced && marks == strings.Repeat("#", len(marks)) && marks != "" {
			switch {
			case strings.TrimSpace(heading) == title:
				level = len(marks)
			case len(marks) <= level:
				level = 0
			}
		}
		if level > 0 {
			section.WriteString(line)
		}
	}
	s := Section{t: t, where: fmt.Sprintf("section %q of %s", title, path), text: section.String()}
	if s.text == "" {
		t.Fatalf("there is no %s", s.where)
	}
	return s
}

var (
	fencedBlock  = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$")
	indentedLine = regexp.MustCompile(`(?m)^ {4,}(\S.*)$`)
	inlineCode   = regexp.MustCompile("`([^`\n]+)`")
)

// Block returns the only fenced block with a text.
func (s Section) Block(text string) string {
	s.t.Helper()
	return s.only(text, matches(fencedBlock, s.text))
}

// Command returns the only command with a text. The section has it as a line that is indented, or as code within a line.
func (s Section) Command(text string) string {
	s.t.Helper()
	prose := fencedBlock.ReplaceAllString(s.text, "")
	return s.only(text, append(matches(indentedLine, prose), matches(inlineCode, prose)...))
}

// matches returns the first groups of all matches.
func matches(pattern *regexp.Regexp, text string) (found []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, m[1])
	}
	return found
}

// only returns the one of the texts that has a part. The section may have it several times.
func (s Section) only(part string, texts []string) string {
	s.t.Helper()
	found := ""
	for _, text := range texts {
		if !strings.Contains(text, part) || text == found {
			continue
		}
		if found != "" {
			s.t.Fatalf("the %s has several commands with %q: %q and %q", s.where, part, found, text)
		}
		found = text
	}
	if found == "" {
		s.t.Fatalf("the %s has no command with %q", s.where, part)
	}
	return found
}

// Shown is a command of a transcript, with the output that the page shows below it.
type Shown struct{ Line, Output string }

// Commands returns the commands of a transcript. Each begins with "$ " and has one line.
func Commands(transcript string) (commands []Shown) {
	for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(transcript, -1)[1:] {
		line, output, _ := strings.Cut(part, "\n")
		commands = append(commands, Shown{line, output})
	}
	return commands
}
