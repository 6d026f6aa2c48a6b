package node

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/script"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

var leaderKills = flag.Int("leaderkills", 2, "how often the cluster's leader is killed while a script works")

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// install returns a folder with the scripts and the library.
func install(t *testing.T) string {
	t.Helper()
	if !suite.Listed("npm-etcd3") {
		t.Skip("the package is of the npm registry: LEASEKEEPER_TEST_REQUIRE=npm-etcd3 gets it and runs this test")
	}
	cluster.Need(t, "npm-etcd3", "/usr/bin/node", "/usr/bin/npm")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	npm.Env = append(os.Environ(), "npm_config_cache="+filepath.Join(dir, "cache"))
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return dir
}

// Each answer that the library gets from Leasekeeper is the one that it gets from etcd.
func TestNodeClientGetsEtcdsAnswers(t *testing.T) {
	dir := install(t)
	script.Compare(t, func(t *testing.T, c *cluster.Cluster) []string {
		return script.Run(t, dir, "node", "features.js", c.Leader().Endpoint())
	})
}

// Programs with this library lose nothing while the leader is killed, several times, and each member is replaced.
func TestNodeClientOutlivesTheMembers(t *testing.T) {
	dir := install(t)
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			c := cluster.Start(t, kind, 3)
			script.StartFaults(t, dir, "node", "faults.js", strings.Join(c.Endpoints(), ",")).Outlive(c, *leaderKills)
		})
	}
}
