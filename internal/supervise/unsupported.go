//go:build !linux && !darwin

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
)

// NotifyTermination delivers the signals that usually end a process to the channel.
func NotifyTermination(to chan<- os.Signal) { signal.Notify(to, os.Interrupt) }

// Run returns an error: on this system it could not end the processes that a command starts.
func Run(Options) (Outcome, error) { return Outcome{}, unsupported() }

// SpareGuard is a guard that has no order yet. On this system there is none.
type SpareGuard struct{}

// StartGuard returns nil.
func StartGuard(Options) *SpareGuard { return nil }

// Close does nothing.
func (*SpareGuard) Close() {}

// Guard returns an error.
func Guard(uintptr, [3]*os.File) error { return unsupported() }

func unsupported() error {
	return fmt.Errorf("commands can be run under a lease on Linux and macOS only: %w", errors.ErrUnsupported)
}

// Die does nothing: on this system a process cannot end itself by a signal.
func Die(os.Signal) {}

// DieWithGroup does nothing.
func DieWithGroup(os.Signal) {}
