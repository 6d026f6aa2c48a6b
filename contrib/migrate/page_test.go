package migratelease_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

var programBlock = regexp.MustCompile("(?s)```go\n(package main\n.*?)```")

func TestPageShowsProgramThatCompiles(t *testing.T) {
	page, err := os.ReadFile("../../docs/contrib/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	block := programBlock.FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no program")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "main.go")
	for name, text := range map[string][]byte{file: block[1], filepath.Join(dir, "migrations", "1_users.up.sql"): []byte("SELECT 1")} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
