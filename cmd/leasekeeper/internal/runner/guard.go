package runner

import (
	"os"
	"strconv"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// Guard runs the second process of `run`, which `run` starts under the name [supervise.GuardName]. It is not a command:
// with an argument vector of its own it does not match patterns such as pkill -f 'leasekeeper run'.
func Guard(args []string) error {
	if len(args) == 1 {
		if socket, err := strconv.ParseUint(args[0], 10, 31); err == nil && socket > 2 {
			return supervise.Guard(uintptr(socket), [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
		}
	}
	return command.WrongUsage("only `leasekeeper run` starts a program under this name: start it as leasekeeper")
}
