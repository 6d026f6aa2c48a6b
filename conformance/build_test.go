package conformance

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The targets of the suite: etcd, our server alone, and a cluster of three of ours. Clients of the cluster know only a
// follower, or all members.
const (
	etcd        = "etcd"
	leasekeeper = "leasekeeper"
	follower    = "follower"
	everyone    = "everyone"
)

var allTargets = []string{etcd, leasekeeper, follower, everyone}

var targetFlag = flag.String("target", "", "run against these targets only, with commas between them: etcd, leasekeeper, follower, everyone (default all)")

// binaries holds the paths of what TestMain has built.
var binaries struct {
	etcdctl string
	etcdutl string
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

// overlapWaits lets more tests run in parallel than two processors could: most of their time is spent waiting for leases to
// end and for leaders. With twelve, a slow machine had a load of 40, and etcd's own requests and leases ran out of time too. An
// explicit -parallel wins.
func overlapWaits() {
	const parallel = "test.parallel"
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if !given {
		flag.Set(parallel, "6")
	}
}

func buildAll(dir string) error {
	for _, name := range targets() {
		if !slices.Contains(allTargets, name) {
			return fmt.Errorf("unknown -target %q: want some of %s", name, strings.Join(allTargets, ", "))
		}
	}
	var err error
	if binaries.etcdctl, err = build(dir, ".", "etcdctl", "go.etcd.io/etcd/etcdctl/v3"); err != nil {
		return err
	}
	if binaries.etcdutl, err = build(dir, ".", "etcdutl", "go.etcd.io/etcd/etcdutl/v3"); err != nil {
		return err
	}
	source := map[string]struct{ folder, pkg string }{
		etcd:        {".", "go.etcd.io/etcd/server/v3"},
		leasekeeper: {"..", "./cmd/leasekeeper"},
	}
	binaries.server = make(map[string]string)
	needed := programs()
	if !slices.Contains(needed, leasekeeper) {
		needed = append(needed, leasekeeper) // as a client: it keeps leases on etcd
	}
	for _, name := range needed {
		s := source[name]
		if binaries.server[name], err = build(dir, s.folder, name, s.pkg); err != nil {
			return err
		}
	}
	return nil
}

func build(dir, folder, name, pkg string, flags ...string) (string, error) {
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), pkg)...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// targets lists what this run covers.
func targets() []string {
	if *targetFlag != "" {
		return strings.Split(*targetFlag, ",")
	}
	return allTargets
}

// chosen are those of the targets that this run covers.
func chosen(of ...string) []string {
	return slices.DeleteFunc(of, func(name string) bool { return !slices.Contains(targets(), name) })
}

// programs are the servers that this run needs, by the names of the targets where they are alone.
func programs() []string {
	var needed []string
	if len(chosen(etcd)) > 0 {
		needed = append(needed, etcd)
	}
	if len(chosen(leasekeeper, follower, everyone)) > 0 {
		needed = append(needed, leasekeeper)
	}
	return needed
}
