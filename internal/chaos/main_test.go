//go:build linux

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
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
	if out, err := exec.Command("go", "build", "-o", built, "../../cmd/leasekeeper").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "chaos: building the command: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}
