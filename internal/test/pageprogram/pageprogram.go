package pageprogram

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var programBlock = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

// Vet checks the program of a page. The files, by their paths, lie in the same directory, for programs that embed some. The module of
// the test must have all packages that the program imports: the test imports those that nothing else does.
func Vet(t *testing.T, page string, files map[string]string) {
	t.Helper()
	program := writeProgram(t, page, t.TempDir(), files)
	if out, err := goCommand("vet", program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// writeProgram writes the program of a page into a directory, with files next to it, and returns its path.
func writeProgram(t *testing.T, page, dir string, files map[string]string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := programBlock.FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no program", page)
	}
	program := filepath.Join(dir, "main.go")
	write(t, program, string(block[1]))
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	return program
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
