package runner

import (
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/deadlineguard"
)

// GuardError returns why a process with the name [supervise.GuardName] is still there, which package deadlineguard should
// have ended. The guard is not a command: with an argument vector of its own it does not match patterns such as
// pkill -f 'leasekeeper run'.
func GuardError() error {
	if err := deadlineguard.Failed(); err != nil {
		return err
	}
	return command.WrongUsage("only `leasekeeper run` starts a program under this name: start it as leasekeeper")
}
