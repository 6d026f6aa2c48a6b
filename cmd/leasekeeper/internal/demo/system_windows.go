package demo

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// canPause says whether this system can pause a process.
const canPause = false

// pause is not possible on this system.
func pause(*os.Process) error { return errors.ErrUnsupported }

// resume is not possible on this system.
func resume(*os.Process) error { return errors.ErrUnsupported }

// ownGroup makes cmd the first process of a process group, so that Ctrl-C does not reach it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// killGroup kills p. The other processes end because their standard input ends.
func killGroup(p *os.Process) { p.Kill() }

// endSignals are the signals that ask a command to end.
var endSignals = []os.Signal{os.Interrupt}

// surviveParent does nothing: on this system writes to a closed standard output return errors.
func surviveParent() {}
