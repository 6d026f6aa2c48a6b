package conformance

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Package backend/etcd keeps leases in etcd's own store. In the main module its tests run against our server. Here they run
// against etcd itself, together with etcdctl. They are built in the main module, so that this one imports none of our code.
func TestEtcdBackendPassesTheSuite(t *testing.T) {
	tests := filepath.Join(t.TempDir(), "etcd.test")
	build := exec.Command("go", "test", "-c", "-o", tests, "./backend/etcd")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the tests: %v\n%s", err, out)
	}
	run := func(t *testing.T, s *server, arguments ...string) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, tests, append(arguments, "-test.timeout=4m", "-test.parallel=8", "-endpoint="+s.grpcAddr, "-etcdctl="+binaries.etcdctl)...)
		cmd.Dir = t.TempDir()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	t.Parallel()
	for _, target := range chosen(etcd, leasekeeper) {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			run(t, startServer(t, target))
		})
		if target == etcd {
			// Our server has no users.
			t.Run("users", func(t *testing.T) {
				t.Parallel()
				run(t, startServer(t, target), "-users", "-test.run=TestUserOfEtcdMayUseItsPrefixOnly")
			})
		}
	}
}
