package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A newcomer runs the tutorial's program in an empty directory, with the commands of the page and nothing else. The
// commands use the clone alone: no proxy is asked for a module.
func TestTutorialsProgramRunsInAnEmptyModule(t *testing.T) {
	p := readPage(t, "tutorial.md")
	clone, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	// The page has the clone next to the directory of the program.
	if err := os.Symlink(clone, filepath.Join(p.dir, "leasekeeper")); err != nil {
		t.Fatal(err)
	}
	server, err := launch(launchOptions{dir: p.dir, env: os.Environ(), args: []string{"--data-dir", "data"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.kill)
	p.dir = filepath.Join(p.dir, "try")
	if err := os.Mkdir(p.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	program := strings.Replace(p.block("package main\n"), "127.0.0.1:2379", server.endpoint, 1)
	if err := os.WriteFile(filepath.Join(p.dir, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	// Without cgo, so that dependencies are compiled once for all tests, also under the race detector.
	p.env = []string{"CGO_ENABLED=0", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off"}
	for _, command := range shownCommands(p.block("$ go mod init ")) {
		out := p.succeed(command.line)
		if command.output == "" {
			continue // the page leaves out what Go says
		}
		if plainLog(out) != plainLog(command.output) {
			t.Errorf("%s\nprints\n%sand in docs/tutorial.md\n%s", command.line, out, command.output)
		}
	}
}

// plainLog replaces what differs from one run to the next in lines of package log.
func plainLog(output string) string {
	return regexp.MustCompile(`\d+`).ReplaceAllString(output, "N")
}
