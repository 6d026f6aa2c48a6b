package serve

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"

	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/command"
	"github.com/leasekeeper/leasekeeper/cmd/leasekeeper/internal/settings"
	"github.com/leasekeeper/leasekeeper/server"
)

// checkPorts listens on all addresses of the server for a moment, and returns an error that says what to do. If another
// program takes a port afterwards, the server reports that when it listens.
func checkPorts(s settings.Server, plan *settings.Cluster) error {
	if err := refusePort(s.Listen, "--listen"); err != nil {
		return err
	}
	if plan != nil {
		if err := refusePort(plan.Listen, "--peer-listen"); err != nil {
			return err
		}
	}
	if s.HTTP == server.HTTPOff {
		return nil
	}
	return refusePort(s.HTTP, "--http")
}

// PortError says why the server could not listen on an address, and what to do.
type PortError struct {
	InUse bool // another program listens there
	text  string
}

func (e *PortError) Error() string { return e.text }

// refusePort is [CheckPort] with an exit code.
func refusePort(addr, flag string) error {
	if err := CheckPort(addr, flag); err != nil {
		return &command.Error{Code: command.ExitFailed, Cause: err}
	}
	return nil
}

// CheckPort listens on addr for a moment. flag is the setting that chose the address. Its error is a [*PortError].
func CheckPort(addr, flag string) error {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l.Close()
	}
	var inner *net.OpError
	cause := err
	if errors.As(err, &inner) {
		cause = inner.Err
	}
	failed := func(format string, args ...any) error { return &PortError{text: fmt.Sprintf(format, args...)} }
	switch {
	case isAddressInUse(err):
		return &PortError{InUse: true, text: fmt.Sprintf("another program already listens on %s, perhaps another leasekeeper: stop it, or choose another address with %s", addr, flag)}
	case errors.Is(err, syscall.EACCES):
		return failed("the system does not allow this user to listen on %s: choose a port above 1023 with %s", addr, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return failed("%s is not an address of this machine: choose one of its addresses with %s", addr, flag)
	}
	return failed("cannot listen on %s (%v): choose another address with %s", addr, cause, flag)
}

// isAddressInUse reports whether another program listens on the address. Windows has its own number for this error,
// which package syscall does not name.
func isAddressInUse(err error) bool {
	const windowsAddressInUse = syscall.Errno(10048)
	return errors.Is(err, syscall.EADDRINUSE) || runtime.GOOS == "windows" && errors.Is(err, windowsAddressInUse)
}
