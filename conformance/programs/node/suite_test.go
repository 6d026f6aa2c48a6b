package node

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/conformance/programs/cluster"
	"github.com/leasekeeper/leasekeeper/conformance/programs/process"
	"github.com/leasekeeper/leasekeeper/conformance/programs/suite"
)

// sourceVariable names a checkout of the package's repository at v1.1.2: the archive in the npm registry has no tests.
const sourceVariable = "ETCD3_SOURCE"

// suiteTests is how many tests the suite has, without the two that are marked as pending there.
const suiteTests = 155

// suiteLimit bounds one run of the package's own suite.
const suiteLimit = 6 * time.Minute

// outcome is what mocha reports of a test.
type outcome struct {
	FullTitle string `json:"fullTitle"`
	Err       struct {
		Message string `json:"message"`
	} `json:"err"`
}

// TestPackagePassesItsOwnSuite runs the tests in the package's repository on each kind of server. The suite connects to one
// address, so the server is alone. The other tests of this package run on clusters.
func TestPackagePassesItsOwnSuite(t *testing.T) {
	source := os.Getenv(sourceVariable)
	switch {
	case source != "":
	case suite.Listed("npm-etcd3"):
		t.Fatalf("LEASEKEEPER_TEST_REQUIRE lists npm-etcd3, and %s does not name a checkout of https://github.com/microsoft/etcd3 at v1.1.2", sourceVariable)
	default:
		t.Skipf("%s does not name a checkout of https://github.com/microsoft/etcd3 at v1.1.2", sourceVariable)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	for _, build := range [][]string{{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"}, {"npx", "--no-install", "tsc"}} {
		command(t, dir, build...)
	}
	for _, kind := range cluster.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			addr := startWithTLS(t, kind, filepath.Join(dir, "src/test/certs"))
			whole := mocha(t, dir, addr)
			if len(whole.Passes)+len(whole.Failures) != suiteTests {
				t.Errorf("%d tests pass, and %d fail", len(whole.Passes), len(whole.Failures))
			}
			for _, f := range whole.Failures {
				t.Logf("%s: %s", f.FullTitle, f.Err.Message)
				// Its tests have ten seconds each, and some wait for an event that they may miss by themselves.
				if alone := mocha(t, dir, addr, "-f", f.FullTitle); len(alone.Passes) == 0 || len(alone.Failures) > 0 {
					t.Errorf("%s fails alone, too", f.FullTitle)
				}
			}
			t.Logf("%d tests pass at the first attempt", len(whole.Passes))
		})
	}
}

// report is what mocha reports of a run.
type report struct{ Passes, Failures []outcome }

// mocha runs tests of the suite on a server.
func mocha(t *testing.T, dir, addr string, arguments ...string) (r report) {
	t.Helper()
	out := command(t, dir, append([]string{"env", "ETCD_ADDR=" + addr, "ETCD_VERSION=3.6.0", "npx", "--no-install", "mocha", "--reporter", "json"}, arguments...)...)
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// command runs a command in a folder, and returns its standard output. Mocha ends with the number of failed tests, so its
// report is looked at even if it fails.
func command(t *testing.T, dir string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil && !strings.Contains(string(out), `"failures"`) {
		t.Fatalf("%q: %v\n%s\n%s", args, err, out, stderr.String())
	}
	return string(out)
}

// startWithTLS starts a server with the suite's certificate, and returns its address.
func startWithTLS(t *testing.T, kind cluster.Kind, certificates string) string {
	t.Helper()
	addr, peers := cluster.Address(t), cluster.Address(t)
	cert, key := filepath.Join(certificates, "certs/etcd0.localhost.crt"), filepath.Join(certificates, "private/etcd0.localhost.key")
	args := []string{"serve", "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", addr, "--http", "off", "--cert", cert, "--key", key}
	if kind == cluster.Etcd {
		url := "https://" + addr
		args = []string{"--data-dir", filepath.Join(t.TempDir(), "data"), "--log-level", "error", "--cert-file", cert, "--key-file", key,
			"--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", "http://" + peers}
	}
	logs := filepath.Join(t.TempDir(), "log")
	p, err := process.Start(logs, cluster.Program(t, kind), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			process.ShowLog(t, string(kind), logs)
		}
	})
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return addr
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
