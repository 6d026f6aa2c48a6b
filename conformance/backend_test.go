package conformance

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Package backend/etcd keeps leases in etcd's own store. In the main module its tests run against our server in the same
// process. Here they run against etcd itself and against our program, together with etcdctl. Each run takes minutes of waiting,
// so it is a test of its own: the parts of a test begin after all other tests have begun.

func TestEtcdBackendPassesTheSuiteOnEtcd(t *testing.T) {
	testEtcdBackend(t, etcd)
}

func TestEtcdBackendPassesTheSuiteOnOurServer(t *testing.T) {
	testEtcdBackend(t, leasekeeper)
}

func TestUserOfEtcdMayUseItsPrefixOnly(t *testing.T) {
	testEtcdBackend(t, etcd, "-users", "-test.run=^TestUserOfEtcdMayUseItsPrefixOnly$")
}

func TestUserOfOurServerMayUseItsPrefixOnly(t *testing.T) {
	testEtcdBackend(t, leasekeeper, "-users", "-test.run=^TestUserOfEtcdMayUseItsPrefixOnly$")
}

// testEtcdBackend runs the tests of package backend/etcd on a fresh server, if this run covers the target.
func testEtcdBackend(t *testing.T, target string, arguments ...string) {
	t.Helper()
	t.Parallel()
	if len(chosen(target)) == 0 {
		t.Skipf("-target does not name %s", target)
	}
	tests, err := etcdBackendTests()
	wantOK(t, "building the tests", err)
	s := startServer(t, target)
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tests, append(arguments, "-test.timeout=10m", "-test.parallel=8", "-endpoint="+s.grpcAddr, "-etcdctl="+binaries.etcdctl)...)
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// etcdBackendTests returns the path of the tests. They are built in the main module, so that this one imports none of our code.
var etcdBackendTests = sync.OnceValues(func() (string, error) {
	tests := filepath.Join(filepath.Dir(binaries.etcdctl), "etcd.test")
	build := exec.Command("go", "test", "-c", "-o", tests, "./backend/etcd")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return tests, nil
})
