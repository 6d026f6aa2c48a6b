package required

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// variable is the environment variable that lists the needs without which a test fails.
const variable = "LEASEKEEPER_TEST_REQUIRE"

// Is reports whether a test must fail without a need.
func Is(need string) bool {
	return slices.Contains(strings.Split(os.Getenv(variable), ","), need)
}

// Program returns the path of a program, which it looks for in the search path and then in the folders. Without it, the test
// ends: it fails if the need is required, and is skipped otherwise.
func Program(t testing.TB, need, name string, folders ...string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, f := range folders {
		if path, err := exec.LookPath(filepath.Join(f, name)); err == nil {
			return path
		}
	}
	end(t, need, name)
	return ""
}

// File ends the test if there is no file at the path: it fails if the need is required, and is skipped otherwise.
func File(t testing.TB, need, path string) {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return
	}
	end(t, need, path)
}

// end ends a test that lacks a need.
func end(t testing.TB, need, missing string) {
	t.Helper()
	if Is(need) {
		t.Fatalf("%s is not installed: there is no %s", need, missing)
	}
	t.Skipf("%s is not installed: there is no %s", need, missing)
}
