//go:build !linux && !darwin

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
)

// Ends has signals delivered to the channel that usually end a process.
func Ends(to chan<- os.Signal) { signal.Notify(to, os.Interrupt) }

// Run refuses: on this system nothing could be promised about what a command starts.
func Run(Options) (Outcome, error) { return Outcome{}, unsupported() }

// Guard refuses.
func Guard(uintptr, [3]*os.File) error { return unsupported() }

func unsupported() error {
	return fmt.Errorf("commands can be run under a lease on Linux and macOS only: %w", errors.ErrUnsupported)
}

// Die cannot end a process by a signal here, and returns.
func Die(os.Signal) {}

// DieWithGroup does no more.
func DieWithGroup(os.Signal) {}
