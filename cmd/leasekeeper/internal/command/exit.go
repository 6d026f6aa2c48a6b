package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// Exit codes. They are part of the interface; docs/reference/command.md lists them.
const (
	ExitDone        = 0
	ExitFailed      = 1 // the command failed, or a server refused
	ExitUsage       = 2 // a flag, an argument or the configuration is wrong; the command sent no request
	ExitUnreachable = 3 // no server answered in time; a change may or may not have taken effect
	ExitTrouble     = 4 // a store cannot be used: it is damaged, or lacks this feature; the code says nothing about the name
)

// Exit codes of `run` itself, not of the command that it runs. They are those of flock(1), env(1) and sysexits.h.
const (
	ExitBusy      = 1   // the name is not free; --conflict-exit-code chooses another
	ExitLost      = 75  // the lease was lost or about to be lost, and the command was stopped
	ExitOwn       = 125 // leasekeeper failed, or was called incorrectly
	ExitCannotRun = 126 // the command cannot be run
	ExitNotFound  = 127 // the command was not found
	ExitSignal    = 128 // plus the number of the signal that ended the command
)

// Error is the error of a command, with the exit code of the process.
type Error struct {
	Code  int
	Cause error // what to print; nil if the command has printed it already
	Busy  bool  // the name is not free, and Code is the one of --conflict-exit-code: no caller may replace it
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

// Failed returns an error with [ExitFailed].
func Failed(format string, args ...any) error {
	return &Error{Code: ExitFailed, Cause: fmt.Errorf(format, args...)}
}

// WrongUsage returns an error with [ExitUsage].
func WrongUsage(format string, args ...any) error {
	return &Error{Code: ExitUsage, Cause: fmt.Errorf(format, args...)}
}

// Report prints err in one line on stderr, and returns the exit code. For a nil error it prints nothing.
func Report(err error, stderr io.Writer) int {
	if err == nil {
		return ExitDone
	}
	code := ExitFailed
	var known *Error
	if errors.As(err, &known) {
		code = known.Code
		if known.Cause == nil {
			return code
		}
	}
	// errors.Join puts each error on its own line.
	console.Warn(stderr, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}
