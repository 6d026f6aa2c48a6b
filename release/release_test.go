package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	fresh = flag.Bool("fresh", false, "compile for the second build again, instead of taking packages from the first one's cache")
	all   = flag.Bool("all", false, "build for all systems, and not for linux/amd64 alone")
)

// made is the release that the tests examine. built makes it once.
var made struct {
	once sync.Once
	*work
	failed error
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if made.work != nil {
		os.RemoveAll(made.out)
	}
	os.Exit(code)
}

// built returns a release of this checkout. Its scratch directory no longer exists.
func built(t testing.TB) *work {
	t.Helper()
	made.once.Do(func() {
		checkout, err := filepath.Abs("..")
		if err != nil {
			made.failed = err
			return
		}
		from := source{dir: checkout, version: "v0.1.0", commit: strings.Repeat("ab", 20), when: time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)}
		out, err := os.MkdirTemp("", "leasekeeper-built-")
		if err != nil {
			made.failed = err
			return
		}
		if made.work, made.failed = build(from, testTargets(), out); made.failed != nil {
			os.RemoveAll(out)
		}
	})
	if made.failed != nil {
		t.Fatal(made.failed)
	}
	return made.work
}

// testTargets are the systems that the tests build for.
func testTargets() []target {
	if *all {
		return allTargets
	}
	return []target{{"linux", "amd64"}}
}

// copyCheckout copies the files of a checkout, without its history, to another directory.
func copyCheckout(t testing.TB, from, to string) {
	t.Helper()
	list, err := exec.Command("git", "-C", from, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skipf("the checkout has no Git history to list its files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(from, name))
		if os.IsNotExist(err) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// The second build is in a directory with another path and other modes and times of files.
func TestTwoBuildsInDifferentDirectoriesAreEqual(t *testing.T) {
	first := built(t)
	from := first.source
	from.dir = filepath.Join(t.TempDir(), "somewhere", "else")
	copyCheckout(t, first.dir, from.dir)
	second := t.TempDir()
	if *fresh {
		t.Setenv("GOCACHE", t.TempDir())
	}
	if _, err := build(from, testTargets(), second); err != nil {
		t.Fatal(err)
	}
	want, got := sumsOf(t, first.out), sumsOf(t, second)
	for name, sum := range want {
		if got[name] != sum {
			t.Errorf("%s differs: %s in the first build, %s in the second", name, sum, got[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("the first build has %d files, the second %d", len(want), len(got))
	}
}

// sumsOf returns the checksum of each file of a directory by its name.
func sumsOf(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sums := make(map[string]string)
	for _, e := range entries {
		if sums[e.Name()], err = sha256Of(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return sums
}

func TestChecksumsCoverEveryOtherFile(t *testing.T) {
	out := built(t).out
	text, err := os.ReadFile(filepath.Join(out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	want := sumsOf(t, out)
	delete(want, "SHA256SUMS")
	for name, sum := range want {
		if listed[name] != sum {
			t.Errorf("SHA256SUMS has %q for %s, whose checksum is %s", listed[name], name, sum)
		}
	}
	if len(listed) != len(want) {
		t.Errorf("SHA256SUMS lists %d files of %d", len(listed), len(want))
	}
}

func TestListHasEveryFileWithItsSize(t *testing.T) {
	w := built(t)
	var listed strings.Builder
	if err := list(&listed, w.files); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(w.out)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("%d  %s\n", info.Size(), e.Name()); strings.Count(listed.String(), " "+line) != 1 || info.Size() == 0 {
			t.Errorf("the list does not have %q once:\n%s", line, &listed)
		}
	}
	if n := strings.Count(listed.String(), "\n"); n != len(entries) {
		t.Errorf("the list has %d lines for %d files", n, len(entries))
	}
	if err := list(io.Discard, []string{filepath.Join(w.out, "gone")}); err == nil {
		t.Error("a file that is missing is listed")
	}
}

func TestReleaseIsNotMixedWithOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := build(source{}, nil, dir); err == nil || !strings.Contains(err.Error(), "is not an empty directory") {
		t.Errorf("a directory with a file gives %v", err)
	}
}

// A release is of a commit with a tag. A build of anything else needs a version of its own.
func TestVersionComesFromTheTag(t *testing.T) {
	dir := t.TempDir()
	do := func(args ...string) {
		t.Helper()
		if _, err := git(dir, append([]string{"-c", "user.name=x", "-c", "user.email=x@example.org"}, args...)...); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(version, because string) {
		t.Helper()
		if _, err := readSource(dir, version); err == nil || !strings.Contains(err.Error(), because) {
			t.Errorf("with version %q: %v, which does not say %q", version, err, because)
		}
	}
	do("init", "-q")
	do("commit", "-q", "--allow-empty", "-m", "first")
	refused("", "no tag for a version")
	refused("0.1", "is not a version")
	do("tag", "v0.3.0-rc.1")
	s, err := readSource(dir, "")
	if err != nil || s.version != "v0.3.0-rc.1" || s.number() != "0.3.0-rc.1" || len(s.commit) != 40 || s.when.IsZero() {
		t.Errorf("a commit with a tag gives %+v, %v", s, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("", "not committed")
	if s, err := readSource(dir, "v0.0.1"); err != nil || !strings.HasSuffix(s.commit, "-dirty") {
		t.Errorf("a checkout with changes and a version gives %+v, %v", s, err)
	}
}
