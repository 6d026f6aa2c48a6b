package deadlineguard

import (
	"os"
	"strconv"

	"github.com/leasekeeper/leasekeeper/internal/supervise"
)

// guardError is the error of the guard; nil if this process is no guard.
var guardError error

func init() {
	socket, ok := socketOf(os.Args)
	if !ok {
		return
	}
	if guardError = supervise.Guard(socket, [3]*os.File{os.Stdin, os.Stdout, os.Stderr}); guardError == nil {
		os.Exit(0)
	}
}

// socketOf returns the socket to the wrapper from the command line of a guard.
func socketOf(args []string) (socket uintptr, ok bool) {
	if len(args) != 2 || args[0] != supervise.GuardName {
		return 0, false
	}
	number, err := strconv.ParseUint(args[1], 10, 31)
	return uintptr(number), err == nil && number > 2
}

// Failed returns the error with which the guard has failed; nil if this process was not called as `run` calls its guard.
func Failed() error { return guardError }
