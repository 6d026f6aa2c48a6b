package pageprogram

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var goBlock = regexp.MustCompile("(?s)```go\n(.*?)```")

// Build compiles the programs of a page into a directory and returns their paths, in the order of the page. The test
// fails unless there are that many of them, `go vet` accepts each, and no block of Go is anything else. The module of
// the test must have all packages that the programs import.
func Build(t *testing.T, page string, programs int, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := goBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) != programs {
		t.Fatalf("%s has %d blocks of Go, want %d", page, len(blocks), programs)
	}
	built := make([]string, len(blocks))
	for i, block := range blocks {
		if !strings.HasPrefix(block[1], "package main\n") {
			t.Fatalf("%s shows Go that is no program:\n%s", page, block[1])
		}
		source := filepath.Join(dir, fmt.Sprint(i), "main.go")
		write(t, source, block[1])
		built[i] = filepath.Join(dir, fmt.Sprint("program", i))
		for _, args := range [][]string{{"vet", source}, {"build", "-o", built[i], source}} {
			if out, err := goCommand(args...).CombinedOutput(); err != nil {
				t.Fatalf("program %d of %s: %v\n%s", i+1, page, err, out)
			}
		}
	}
	return built
}

// goCommand returns a command of Go. A program of a page needs no cgo, and what it imports is compiled without for other
// tests; with it, the tests that run under the race detector would compile all of that once more.
func goCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}
