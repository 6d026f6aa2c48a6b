//go:build linux

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// Packages of the command, so that go test does not reuse a cached result after they have changed.
	_ "github.com/leasekeeper/leasekeeper/internal/peer"
	_ "github.com/leasekeeper/leasekeeper/server"
)

// insideVariable names the environment variable of the test process inside namespaces: the path of the command under test.
const insideVariable = "LEASEKEEPER_CHAOS_INSIDE"

// built is the path of the command under test.
var built string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if built = os.Getenv(insideVariable); built != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	built = filepath.Join(dir, "leasekeeper")
	if out, err := exec.Command("go", "build", "-o", built, "../../../cmd/leasekeeper").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: building the command: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// noteSources opens the source files of the command, so that go test does not reuse a cached result after they have changed.
func noteSources(t *testing.T) {
	for _, pattern := range []string{"../../../cmd/leasekeeper/*.go", "../../../cmd/leasekeeper/internal/*/*.go"} {
		files, err := filepath.Glob(pattern)
		must(t, err)
		for _, f := range files {
			_, err := os.Stat(f)
			must(t, err)
		}
	}
}
