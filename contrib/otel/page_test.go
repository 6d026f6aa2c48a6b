package otellease_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // the page's program uses it
)

var programBlock = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

func TestPageShowsProgramThatCompiles(t *testing.T) {
	page, err := os.ReadFile("../../docs/contrib/otel.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := programBlock.FindSubmatch(page)
	if blocks == nil {
		t.Fatal("the page has no program")
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, blocks[1], 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
