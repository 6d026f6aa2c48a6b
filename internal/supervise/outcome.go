package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Tenure is the holding of a lease, as far as the command that runs under it is concerned.
type Tenure interface {
	// Context ends when the lease is lost, if not before for another reason.
	Context() context.Context
	// Deadline is until when the lease may be relied on. It moves with each renewal.
	Deadline() clock.Instant
}

// Command is what to run.
type Command struct {
	Path string   // of the program; no search in PATH
	Args []string // with the name it is called by in front
	Env  []string
	// Stdin, Stdout and Stderr become the command's.
	Stdin, Stdout, Stderr *os.File
	// Terminal says to make it the terminal's foreground group, if that is the wrapper's group now.
	Terminal bool
}

// GuardName is what the guard should be called, as the first of [Options.GuardArgs], and is its name for the system on
// Linux. It has nothing in common with a command line of the wrapper, so that no pattern such as that of
// `pkill -STOP leasekeeper` or `pkill -f 'leasekeeper run'` hits both processes.
const GuardName = "deadline-guard"

// Options say what to run and under which lease.
type Options struct {
	Command Command
	Terms   Terms
	Tenure  Tenure
	// GuardPath is the program that is running now, and GuardArgs a command line for it that runs [Guard], but
	// for the number of the socket, which is added in the end.
	GuardPath string
	GuardArgs []string
	// Signals gets what is sent to the wrapper and meant for the command. Run sees to it that it does; who
	// called [Ends] with it before loses nothing.
	Signals chan os.Signal
	// Tell is called for what a person should know while the command runs.
	Tell func(text string)
}

// Outcome is how a command ended. Nothing of it runs any more, unless Remains is set.
type Outcome struct {
	Code    int  // its exit code, if Signal is 0
	Signal  int  // what killed it; 0 if it ended by itself
	Stopped bool // it was ended because its lease was lost, or about to be
	// Interrupted says that the terminal's interrupt key killed it, or what looks the same from here.
	Interrupted bool
	// Remains says that something could not be ended. The lease must not be given back.
	Remains bool
}

// The exit codes that shells use for what did not come from the command itself.
const (
	codeCannotRun = 126
	codeNotFound  = 127
	signalBase    = 128
)

// ExitCode is what the wrapper's own exit code tells about a command that was not stopped because of its
// lease: its exit code, or 128 and the number of the signal that killed it.
func (o Outcome) ExitCode() int {
	if o.Signal != 0 {
		return signalBase + o.Signal
	}
	return o.Code
}

// ErrGuard says that the guard could not be started, or has failed. The command does not run any more.
var ErrGuard = errors.New("the guard has failed")

// ErrTooLate says that the lease ended before the command could be started.
var ErrTooLate = errors.New("the lease ended before the command was started")

// StartError says that a command could not be started.
type StartError struct {
	Path   string
	Reason string
	Code   int // 127 if there is no such program, else 126
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot run %s: %s", e.Path, e.Reason) }
