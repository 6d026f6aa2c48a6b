package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// openTerminal returns a terminal, and a function that closes it and returns what was written to it.
func openTerminal(t *testing.T) (terminal *os.File, shown func() string) {
	t.Helper()
	reader, terminal, err := pty.Open()
	must(t, err)
	t.Cleanup(func() { reader.Close() })
	t.Cleanup(func() { terminal.Close() }) // it may be closed
	written := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(reader) // ends with EIO when the terminal is closed
		written <- string(text)
	}()
	return terminal, func() string {
		terminal.Close()
		return <-written
	}
}

func TestProgressIsShownOnATerminalOnly(t *testing.T) {
	terminal, shown := openTerminal(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	defer file.Close()
	for _, to := range []*os.File{terminal, file} {
		p := newProgress(to)
		p.line("round %d of %d", 1, 2)
		p.clear()
	}
	if got, want := shown(), eraseLine+"round 1 of 2"+eraseLine; got != want {
		t.Errorf("a terminal shows %q, want %q", got, want)
	}
	if written, err := os.ReadFile(file.Name()); err != nil || len(written) > 0 {
		t.Errorf("a file receives %q, %v", written, err)
	}
}

// A comparison of our server with itself shows each measurement, and removes the line before it prints a result.
func TestComparisonShowsItsProgress(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	binary, err := buildOnce()
	must(t, err)
	dir := t.TempDir()
	b, err := configure([]string{"-quick", "-against", binary, "-server", binary, "-dir", dir, "-results", filepath.Join(dir, "results.jsonl"),
		"-threshold", "0.000001", "-rounds", "1", "-run", "^puts at 1 in flight$"})
	must(t, err)
	b.version = "0123456789ab"
	terminal, shown := openTerminal(t)
	b.say = newProgress(terminal)
	must(t, b.run(t.Context(), io.Discard))
	text := shown()
	for _, side := range []string{oldSide, newSide} {
		if line := eraseLine + "round 1 of 1, row 1 of 1: puts at 1 in flight, " + side + eraseLine; !strings.Contains(text, line) {
			t.Errorf("the terminal shows %q, which lacks %q", text, line)
		}
	}
	if !strings.HasSuffix(text, eraseLine) {
		t.Errorf("progress is left on the terminal: %q", text)
	}
}
