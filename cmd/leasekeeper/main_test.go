package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary stand in for the command, in scripts and for tests that start processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"leasekeeper": main})
}
