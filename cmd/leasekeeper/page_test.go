package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page runs what a page of docs shows, in a directory of its own.
type page struct {
	t      *testing.T
	name   string
	blocks []string          // without their fences
	dir    string            // of the commands
	env    []string          // of the commands, besides the test's own
	places *strings.Replacer // from the places that the page names to those of the test
}

// readPage reads a page by its path below docs.
func readPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, name: name, dir: t.TempDir(), places: strings.NewReplacer()}
	for _, block := range regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$").FindAllStringSubmatch(string(text), -1) {
		p.blocks = append(p.blocks, block[1])
	}
	return p
}

// block returns the only block of the page with this text.
func (p *page) block(text string) string {
	p.t.Helper()
	found := ""
	for _, b := range p.blocks {
		switch {
		case strings.Contains(b, text) && found != "":
			p.t.Fatalf("docs/%s has several blocks with %q", p.name, text)
		case strings.Contains(b, text):
			found = b
		}
	}
	if found == "" {
		p.t.Fatalf("docs/%s has no block with %q", p.name, text)
	}
	return found
}

// shell runs lines, and returns their output and whether all succeeded.
func (p *page) shell(lines string) (string, error) {
	cmd := exec.Command("sh", "-eu", "-c", p.places.Replace(lines))
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), p.env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// succeed runs lines, and returns their output.
func (p *page) succeed(lines string) string {
	p.t.Helper()
	out, err := p.shell(lines)
	if err != nil {
		p.t.Fatalf("%s\n%s%v", lines, out, err)
	}
	return out
}

// shownCommand is a command of a transcript, with the output that the page shows below it.
type shownCommand struct{ line, output string }

// shownCommands returns the commands of a transcript. Each begins with "$ ", and may have several lines, of which all but the
// last end with a backslash.
func shownCommands(block string) (commands []shownCommand) {
	for _, part := range regexp.MustCompile(`(?m)^\$ `).Split(block, -1)[1:] {
		var c shownCommand
		for more := true; more; {
			line, rest, _ := strings.Cut(part, "\n")
			more = strings.HasSuffix(line, `\`)
			c.line, part = c.line+line+"\n", rest
		}
		c.output = part
		commands = append(commands, c)
	}
	return commands
}
