package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// TestMain lets the test binary run as the command leasekeeper, for scripts and for tests that start processes.
func TestMain(m *testing.M) {
	// By default the race detector delays the end of every process by a second.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(tests{m}, map[string]func(){"leasekeeper": main, supervise.GuardName: main})
}

// tests runs the tests with their shared servers.
type tests struct{ *testing.M }

// Run implements [testscript.TestingM].
func (t tests) Run() int {
	// Under nohup this process and its children ignore SIGHUP. Catching it restores the default for the children.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return runTests(t.M)
}

// runTests runs the tests. database_test.go replaces it to stop the database servers after them.
var runTests = (*testing.M).Run
