package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Kind names the server of which a cluster consists.
type Kind string

// The servers.
const (
	Etcd        Kind = "etcd"
	Leasekeeper Kind = "leasekeeper"
)

// Kinds lists the servers. A test that compares them runs once for each.
var Kinds = []Kind{Etcd, Leasekeeper}

// bin is the directory with the built programs. Main sets it before any test runs, and removes it at the end.
var bin string

// Main runs the tests of a package and removes the programs that they built. TestMain calls it and exits with its result.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", "programs-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	bin = dir
	return m.Run()
}

// Program returns the path of the server of a kind, which its first caller builds.
func Program(t testing.TB, kind Kind) string {
	t.Helper()
	switch kind {
	case Etcd:
		return Build(t, "..", "go.etcd.io/etcd/server/v3")
	case Leasekeeper:
		return Build(t, "../..", "./cmd/leasekeeper")
	}
	t.Fatalf("unknown kind of server %q", kind)
	return ""
}

// builds holds the programs by directory and package. mu guards it.
var builds struct {
	mu    sync.Mutex
	paths map[[2]string]string
}

// Build returns the path of a program, which it builds once per test binary. The package is resolved in the module at dir,
// a path relative to the module conformance/programs. A program that does not build fails the test.
func Build(t testing.TB, dir, pkg string) string {
	t.Helper()
	if bin == "" {
		t.Fatal("TestMain does not call cluster.Main")
	}
	builds.mu.Lock()
	defer builds.mu.Unlock()
	key := [2]string{dir, pkg}
	if path := builds.paths[key]; path != "" {
		return path
	}
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(bin, fmt.Sprintf("program-%d", len(builds.paths)))
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = filepath.Join(root, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building %s in %s: %v\n%s", pkg, cmd.Dir, err, out)
	}
	if builds.paths == nil {
		builds.paths = make(map[[2]string]string)
	}
	builds.paths[key] = path
	return path
}

// moduleRoot returns the directory of the module whose tests run.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	mod := strings.TrimSpace(string(out))
	if filepath.Base(mod) != "go.mod" {
		return "", errors.New("the tests do not run in a module")
	}
	return filepath.Dir(mod), nil
}

// Need skips a test on a machine without one of the files. If the environment variable LEASEKEEPER_TEST_REQUIRE lists the
// need, the test fails instead. The files are what a package of Debian installs.
func Need(t testing.TB, need string, files ...string) {
	t.Helper()
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			continue
		}
		if slices.Contains(strings.Split(os.Getenv("LEASEKEEPER_TEST_REQUIRE"), ","), need) {
			t.Fatalf("%s is not installed: there is no %s", need, file)
		}
		t.Skipf("%s is not installed: there is no %s", need, file)
	}
}
