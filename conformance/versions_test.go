package conformance

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// previousFile names the commit whose program runs alongside the program of this commit.
const previousFile = "testdata/previous"

// noHistory is the environment variable that lets the tests with the previous program be skipped where its source is
// missing, such as in an archive of the source. Without it they fail.
const noHistory = "LEASEKEEPER_TEST_NO_HISTORY"

// previousProgram builds the program of the commit that previousFile names, once, and returns its path. The source comes
// from the history of this repository.
var previousProgram = sync.OnceValues(func() (string, error) {
	commit, err := os.ReadFile(previousFile)
	if err != nil {
		return "", err
	}
	archive := exec.Command("git", "archive", "--format=tar", strings.TrimSpace(string(commit)))
	archive.Dir = ".."
	var told bytes.Buffer
	archive.Stderr = &told
	source, err := archive.Output()
	if err != nil {
		return "", errors.New("the history has no commit of " + previousFile + ": fetch it (git fetch --unshallow), or set " + noHistory + "=1 to skip the tests with the previous program: " +
			err.Error() + ": " + told.String())
	}
	dir := filepath.Join(filepath.Dir(binaries.server[leasekeeper]), "previous")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(source)
	if out, err := unpack.CombinedOutput(); err != nil {
		return "", errors.New("unpacking the previous program: " + err.Error() + ": " + string(out))
	}
	return build(filepath.Dir(dir), dir, "previous-leasekeeper", "./cmd/leasekeeper", "-buildvcs=false")
})

// previous returns the path of the previous program.
func previous(t *testing.T) string {
	t.Helper()
	path, err := previousProgram()
	if err != nil && os.Getenv(noHistory) != "" {
		t.Skip(err)
	}
	wantOK(t, "the previous program", err)
	return path
}

// later builds a program of the version after this one. Its only news is that pinning a name belongs to that version.
func later(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	replaced := make(map[string]string)
	for file, change := range map[string]struct{ find, replace string }{
		"gate/gate.go":  {`Newest = (\w+)\n`, "Newest = $1 + 1\n"},
		"entry/gate.go": {`switch c := c\.\(type\) \{\n`, "${0}\tcase ownership.Pin:\n\t\treturn gate.Newest\n"},
	} {
		path, err := filepath.Abs(filepath.Join("..", "internal", "replica", file))
		wantOK(t, file, err)
		text, err := os.ReadFile(path)
		wantOK(t, file, err)
		changed := regexp.MustCompile(change.find).ReplaceAll(text, []byte(change.replace))
		if bytes.Equal(changed, text) {
			t.Fatalf("%s has no %q to be replaced", file, change.find)
		}
		replaced[path] = filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		wantOK(t, file, os.WriteFile(replaced[path], changed, 0o600))
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	wantOK(t, "overlay", err)
	list := filepath.Join(dir, "overlay.json")
	wantOK(t, "overlay", os.WriteFile(list, overlay, 0o600))
	path, err := build(dir, "..", "later", "./cmd/leasekeeper", "-overlay="+list)
	wantOK(t, "the later program", err)
	return path
}
