package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// TestMain makes the test binary stand in for the command, in scripts and for tests that start processes.
func TestMain(m *testing.M) {
	// With the race detector every process waits for a second before it ends, unless told not to.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	testscript.Main(tests{m}, map[string]func(){"leasekeeper": main, supervise.GuardName: main})
}

// tests are all there are, with what they share.
type tests struct{ *testing.M }

// Run implements [testscript.TestingM].
func (t tests) Run() int {
	// Under nohup a hangup is ignored here, and in what is started from here unless it is caught.
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	return runTests(t.M)
}

// runTests runs them. Where there are database servers, those last as long as the tests.
var runTests = (*testing.M).Run
