package conformance

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

const (
	etcd        = "etcd"
	leasekeeper = "leasekeeper"
)

var targetFlag = flag.String("target", "", "run against this target only: etcd or leasekeeper (default both)")

// binaries holds the paths of what TestMain has built.
var binaries struct {
	etcdctl string
	server  map[string]string // by target
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(buildAndRun(m))
}

// buildAndRun builds every program once per test binary. A target that does not
// build fails the whole run: a suite that quietly covers one target of two would
// look green.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := buildAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		return 1
	}
	overlapWaits()
	return m.Run()
}

// overlapWaits lets more tests run beside each other than there are processors:
// most of their time is spent waiting for leases to end. An explicit -parallel
// wins.
func overlapWaits() {
	const parallel = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		flag.Set(parallel, "6")
	}
}

func buildAll(dir string) error {
	if t := *targetFlag; t != "" && !slices.Contains([]string{etcd, leasekeeper}, t) {
		return fmt.Errorf("unknown -target %q: want %s or %s", t, etcd, leasekeeper)
	}
	var err error
	if binaries.etcdctl, err = build(dir, ".", "etcdctl", "go.etcd.io/etcd/etcdctl/v3"); err != nil {
		return err
	}
	source := map[string]struct{ folder, pkg string }{
		etcd:        {".", "go.etcd.io/etcd/server/v3"},
		leasekeeper: {"..", "./cmd/leasekeeper"},
	}
	binaries.server = make(map[string]string)
	for _, name := range targets() {
		s := source[name]
		if binaries.server[name], err = build(dir, s.folder, name, s.pkg); err != nil {
			return err
		}
	}
	return nil
}

func build(dir, folder, name, pkg string) (string, error) {
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// targets lists what this run covers.
func targets() []string {
	if *targetFlag != "" {
		return []string{*targetFlag}
	}
	return []string{etcd, leasekeeper}
}
