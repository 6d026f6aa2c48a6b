package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary stand in for the command, in scripts and for tests that start processes.
func TestMain(m *testing.M) {
	// With the race detector every process waits for a second before it ends, unless told not to.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(m, map[string]func(){"leasekeeper": main})
}
