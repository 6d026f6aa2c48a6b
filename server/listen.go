package server

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"syscall"
)

// listenError says in one sentence why the server cannot listen on an address, and what to change.
type listenError struct {
	sentence string
	cause    error
}

func (e *listenError) Error() string { return e.sentence }
func (e *listenError) Unwrap() error { return e.cause }

// listen listens on addr. flag is the name of the command-line flag that sets addr, for errors.
func listen(addr, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		return l, nil
	}
	if addressInUse(err) {
		return nil, &listenError{fmt.Sprintf("another program already listens on %s: end it, or choose another address with %s", addr, flag), err}
	}
	return nil, &listenError{fmt.Sprintf("cannot listen on %s (%v): choose another address with %s", addr, rootCause(err), flag), err}
}

// addressInUse reports whether another program listens on the address. Windows has its own error number, which package
// syscall does not name on other systems.
func addressInUse(err error) bool {
	const wsaAddressInUse = syscall.Errno(10048)
	return errors.Is(err, syscall.EADDRINUSE) || (runtime.GOOS == "windows" && errors.Is(err, wsaAddressInUse))
}

// rootCause removes the address from an error of package net, since listenError already names it.
func rootCause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
