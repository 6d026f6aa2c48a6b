package main

import (
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// newGuard makes the command that `run` starts itself with, as a second process.
func newGuard() *cobra.Command {
	return &cobra.Command{
		Use:    "guard SOCKET",
		Short:  "End a command in time; started by run",
		Hidden: true,
		Args:   exactly(1, "the number of a socket"),
		RunE: func(_ *cobra.Command, args []string) error {
			socket, err := strconv.ParseUint(args[0], 10, 31)
			if err != nil || socket <= 2 {
				return wrongUsage("%q is not the number of a socket: this command is started by `leasekeeper run`", args[0])
			}
			return supervise.Guard(uintptr(socket), [3]*os.File{os.Stdin, os.Stdout, os.Stderr})
		},
	}
}
