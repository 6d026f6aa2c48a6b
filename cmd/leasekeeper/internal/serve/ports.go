package serve

import (
	"errors"
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
	if err := checkPort(s.Listen, "--listen"); err != nil {
		return err
	}
	if plan != nil {
		if err := checkPort(plan.Listen, "--peer-listen"); err != nil {
			return err
		}
	}
	if s.HTTP == server.HTTPOff {
		return nil
	}
	return checkPort(s.HTTP, "--http")
}

// checkPort listens on addr for a moment. flag is the setting that chose the address.
func checkPort(addr, flag string) error {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l.Close()
	}
	var inner *net.OpError
	cause := err
	if errors.As(err, &inner) {
		cause = inner.Err
	}
	switch {
	case isAddressInUse(err):
		return command.Failed("another program already listens on %s, perhaps another leasekeeper: stop it, or choose another address with %s", addr, flag)
	case errors.Is(err, syscall.EACCES):
		return command.Failed("the system does not allow this user to listen on %s: choose a port above 1023 with %s", addr, flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return command.Failed("%s is not an address of this machine: choose one of its addresses with %s", addr, flag)
	}
	return command.Failed("cannot listen on %s (%v): choose another address with %s", addr, cause, flag)
}

// isAddressInUse reports whether another program listens on the address. Windows has its own number for this error,
// which package syscall does not name.
func isAddressInUse(err error) bool {
	const windowsAddressInUse = syscall.Errno(10048)
	return errors.Is(err, syscall.EADDRINUSE) || runtime.GOOS == "windows" && errors.Is(err, windowsAddressInUse)
}
