package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/console"
)

// Exit codes. They are part of the interface: docs/reference/command.md lists them.
const (
	ExitDone        = 0
	ExitFailed      = 1 // the work could not be done, or a server said no
	ExitUsage       = 2 // a flag, an argument or the configuration is wrong; nothing was tried
	ExitUnreachable = 3 // no server answered in time; a change may or may not have taken effect
	ExitTrouble     = 4 // a store cannot be used: it is damaged, or does not offer this; nothing is said about the name
)

// Exit codes of `run` that do not come from the command it runs; those of flock(1), env(1) and sysexits.h.
const (
	ExitBusy      = 1   // the name is not free; --conflict-exit-code chooses another
	ExitLost      = 75  // the lease was lost, or about to be, and the command was stopped
	ExitOwn       = 125 // we have failed, or were called wrongly
	ExitCannotRun = 126 // the command cannot be run
	ExitNotFound  = 127 // there is no such command
	ExitSignal    = 128 // and the number of the signal that ended the command
)

// An exitError carries the exit code of a command beside what it has to say. A nil cause says nothing:
// the command has already told.
type Error struct {
	Code  int
	Cause error
	Busy  bool // the name is not free: the user may have chosen the code, which stays whatever it is
}

func (e *Error) Error() string {
	if e.Cause == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Cause.Error()
}

func (e *Error) Unwrap() error { return e.Cause }

func Failed(format string, args ...any) error {
	return &Error{Code: ExitFailed, Cause: fmt.Errorf(format, args...)}
}

func WrongUsage(format string, args ...any) error {
	return &Error{Code: ExitUsage, Cause: fmt.Errorf(format, args...)}
}

// Report prints what went wrong, if anything did, and returns the exit code for it.
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
	// Joined errors come in lines of their own; what is told is one sentence.
	console.Warn(stderr, "%s", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}
