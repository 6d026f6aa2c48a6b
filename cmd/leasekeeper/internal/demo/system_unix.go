//go:build unix

package demo

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// canPause says whether this system can pause a process.
const canPause = true

// pause stops a process with SIGSTOP. It may run for a moment longer.
func pause(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// resume lets a paused process go on.
func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }

// ownGroup makes cmd the first process of a process group, so that signals of the terminal do not reach it.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// killGroup kills all processes of the group whose first process was p, also stopped ones. p may have ended, but must not be
// reaped: then its ID may be that of an unrelated group.
func killGroup(p *os.Process) { syscall.Kill(-p.Pid, syscall.SIGKILL) }

// endSignals are the signals that ask a command to end.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// surviveParent keeps a process running whose parent is killed. Writes to its closed standard output return errors then. And
// the system sends SIGHUP to the process group, because it has a stopped process and no parent any more.
func surviveParent() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE, syscall.SIGHUP) }
