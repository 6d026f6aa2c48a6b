package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Exit codes. They are part of the interface: docs/reference/command.md lists them.
const (
	exitDone        = 0
	exitFailed      = 1 // the work could not be done, or a server said no
	exitUsage       = 2 // a flag, an argument or the configuration is wrong; nothing was tried
	exitUnreachable = 3 // no server answered in time; a change may or may not have taken effect
	exitTrouble     = 4 // a store cannot be used: it is damaged, or does not offer this; nothing is said about the name
)

// Exit codes of `run` that do not come from the command it runs; those of flock(1), env(1) and sysexits.h.
const (
	exitBusy      = 1   // the name is not free; --conflict-exit-code chooses another
	exitLost      = 75  // the lease was lost, or about to be, and the command was stopped
	exitOwn       = 125 // we have failed, or were called wrongly
	exitCannotRun = 126 // the command cannot be run
	exitNotFound  = 127 // there is no such command
	exitSignal    = 128 // and the number of the signal that ended the command
)

// An exitError carries the exit code of a command beside what it has to say. A nil cause says nothing:
// the command has already told.
type exitError struct {
	code  int
	cause error
	busy  bool // the name is not free: the user may have chosen the code, which stays whatever it is
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

func failed(format string, args ...any) error {
	return &exitError{code: exitFailed, cause: fmt.Errorf(format, args...)}
}

func wrongUsage(format string, args ...any) error {
	return &exitError{code: exitUsage, cause: fmt.Errorf(format, args...)}
}

// report prints what went wrong, if anything did, and returns the exit code for it.
func report(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	code := exitFailed
	var known *exitError
	if errors.As(err, &known) {
		code = known.code
		if known.cause == nil {
			return code
		}
	}
	// Joined errors come in lines of their own; what is told is one sentence.
	warn(stderr, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}
