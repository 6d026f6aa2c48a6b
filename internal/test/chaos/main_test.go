//go:build linux

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// What the command is made of, so that go test does not take a result for this one's that it has kept.
	_ "github.com/leasekeeper/leasekeeper/internal/peer"
	_ "github.com/leasekeeper/leasekeeper/server"
)

// insideVariable is set for the process that the test starts in namespaces of its own: to the command under test.
const insideVariable = "LEASEKEEPER_CHAOS_INSIDE"

// built is where the command under test is.
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

// noteSources looks at the files of the command itself, which go test takes as a sign that the result depends on them.
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
