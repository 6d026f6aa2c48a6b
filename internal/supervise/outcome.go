package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/leasekeeper/leasekeeper/clock"
)

// Tenure is the lease under which the command runs.
type Tenure interface {
	// Context ends when the lease is lost, or earlier for another reason.
	Context() context.Context
	// Deadline returns the instant until which the holder can rely on the lease. Each renewal moves it.
	Deadline() clock.Instant
}

// Command is the command to run.
type Command struct {
	Path string   // of the program; PATH is not searched
	Args []string // Args[0] is the name of the program
	Env  []string
	// Stdin, Stdout and Stderr are the command's first three files.
	Stdin, Stdout, Stderr *os.File
	// Terminal moves the command's group into the terminal's foreground, if the wrapper's group is there now.
	Terminal bool
}

// GuardName is the name of the guard's process: the first of [Options.GuardArgs] and, on Linux, the name that the system
// shows. It has nothing in common with a command line of the wrapper. So no pattern, such as in `pkill -STOP leasekeeper`
// or `pkill -f 'leasekeeper run'`, hits both processes.
const GuardName = "deadline-guard"

// Options are the command to run, the lease, and how to start the guard.
type Options struct {
	Command Command
	Terms   Terms
	Tenure  Tenure
	// GuardPath is the program of the calling process. GuardArgs is a command line for it that runs [Guard]; Run appends
	// the socket's file descriptor.
	GuardPath string
	GuardArgs []string
	// Spare is a guard that [StartGuard] has started with these options; nil makes Run start one.
	Spare *SpareGuard
	// Signals receives the signals to the wrapper that Run forwards to the command. Run registers it. A caller that
	// has passed it to [NotifyTermination] before loses no signal.
	Signals chan os.Signal
	// Report is called with messages for people while the command runs.
	Report func(text string)
}

// Outcome is how a command ended. All its processes have ended, unless Remains is set.
type Outcome struct {
	Code    int  // its exit code, if Signal is 0
	Signal  int  // the signal that killed it; 0 if it exited
	Stopped bool // it was ended because its lease was lost or about to expire
	// Interrupted is set if SIGINT killed it while its group was in the terminal's foreground: probably by the keyboard.
	Interrupted bool
	// Remains is set if a process could not be ended. The caller must not release the lease then.
	Remains bool
}

// The exit codes that shells use if the command did not exit by itself.
const (
	codeCannotRun = 126
	codeNotFound  = 127
	signalBase    = 128
)

// ExitCode returns the command's exit code, or 128 plus the number of the signal that killed it. The wrapper exits with it
// if the command was not ended because of its lease.
func (o Outcome) ExitCode() int {
	if o.Signal != 0 {
		return signalBase + o.Signal
	}
	return o.Code
}

// ErrGuard is the error of a guard that could not start or that failed. The command has ended.
var ErrGuard = errors.New("the guard has failed")

// ErrTooLate is the error of a lease that ended before the command was started.
var ErrTooLate = errors.New("the lease ended before the command was started")

// StartError is the error of a command that could not be started.
type StartError struct {
	Path   string
	Reason string
	Code   int // 127 if the program does not exist, else 126
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot run %s: %s", e.Path, e.Reason) }
