package runner

import (
	"os"
	"strconv"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// Guard is the second process of `run`, which that starts under the name [supervise.GuardName]. It is no command: an
// argument vector of its own keeps it out of patterns that find `leasekeeper run`.
func Guard(args []string) error {
	if len(args) == 1 {
		if socket, err := strconv.ParseUint(args[0], 10, 31); err == nil && socket > 2 {
			return supervise.Guard(uintptr(socket), [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
		}
	}
	return command.WrongUsage("only `leasekeeper run` starts a program under this name: start it as leasekeeper")
}
