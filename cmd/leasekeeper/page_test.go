package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// page has the blocks of a page of docs, without their fences.
type page struct {
	t      *testing.T
	name   string
	blocks []string
}

// readPage reads a page by its path below docs.
func readPage(t *testing.T, name string) *page {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, name: name}
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
