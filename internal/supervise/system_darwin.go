package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const ownPath = ""

// setProcessName does nothing: on macOS the name of a process is that of its program.
func setProcessName(string) {}

// becomeSubreaper does nothing: macOS has no subreapers.
func becomeSubreaper() error { return nil }

// stopSubreaping does nothing.
func stopSubreaping() {}

// killWithParent does nothing: macOS has no PR_SET_PDEATHSIG.
func killWithParent(*syscall.SysProcAttr) {}

// dup makes to a copy of from.
func dup(from, to int) error { return unix.Dup2(from, to) }

// allGone reports whether the command's group has no members. They need not be children of this process.
func allGone(group int) bool { return syscall.Kill(-group, 0) == syscall.ESRCH }

// ownsGroup returns true: macOS does not let this process find the members of a group.
func ownsGroup(int, []int) bool { return true }

// pollInterval returns how often to check for the end of processes that are no children: they send no SIGCHLD.
func pollInterval(headReaped bool) time.Duration {
	if headReaped {
		return killAgain
	}
	return forever
}

// descendants returns nothing: macOS does not let this process find them.
func descendants(int, ...int) []int { return nil }

// otherDescendants returns nothing, as descendants does.
func otherDescendants(int) []int { return nil }

// parentOf returns the parent of a process.
func parentOf(pid int) (parent int, ok bool) {
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, false
	}
	return int(info.Eproc.Ppid), true
}

const (
	readModes  = unix.TIOCGETA
	writeModes = unix.TIOCSETA
)

func newAlarm() (alarm, error) { return newGoAlarm(), nil }
