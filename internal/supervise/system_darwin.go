package supervise

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const ownPath = ""

// callOneself does nothing: here the name of a process is that of its program.
func callOneself(string) {}

func resume() error { return nil }

func disown() {}

func tether(*syscall.SysProcAttr) {}

func dup(from, to int) error { return unix.Dup2(from, to) }

// allGone asks for the command's group, whose members are not our children.
func allGone(group int) bool { return syscall.Kill(-group, 0) == syscall.ESRCH }

// isOurs: nobody tells, since the members of a group are not found.
func isOurs(int, []int) bool { return true }

// lookAgain: nobody tells when a process ends that is not our child.
func lookAgain(headReaped bool) time.Duration {
	if headReaped {
		return killAgain
	}
	return forever
}

// descendants are not found here.
func descendants(int, ...int) []int { return nil }

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
