//go:build linux || darwin

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const terminalPath = "/dev/tty"

// terminal is the controlling terminal of this process. It is nil if there is none or the command does not use it; its
// methods do nothing then.
type terminal struct {
	file  *os.File
	own   int           // the process group of this process
	given bool          // the command's group was put into the foreground
	modes *unix.Termios // the modes at the start; nil if unknown
}

// openTerminal returns the terminal, or nil if it is not wanted or there is none.
func openTerminal(wanted bool) *terminal {
	if !wanted {
		return nil
	}
	file, err := os.OpenFile(terminalPath, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	t := &terminal{file: file, own: syscall.Getpgrp()}
	if modes, err := unix.IoctlGetTermios(t.fd(), readModes); err == nil {
		t.modes = modes
	}
	return t
}

func (t *terminal) fd() int { return int(t.file.Fd()) }

func (t *terminal) close() {
	if t != nil {
		t.file.Close()
	}
}

// isGiven reports whether the command's group was put into the foreground.
func (t *terminal) isGiven() bool { return t != nil && t.given }

// inForeground reports whether the group of this process is in the foreground.
func (t *terminal) inForeground() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// offer reports whether the guard should start the command in the foreground. Even if the start fails, the foreground group
// may be one that has ended, so the terminal must be taken back.
func (t *terminal) offer() bool {
	if !t.inForeground() {
		return false
	}
	t.given = true
	return true
}

// give puts the command's group into the foreground, if the group of this process is there.
func (t *terminal) give(group int) {
	if t.inForeground() {
		t.given = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group) == nil
	}
}

// takeBack puts the group of this process into the foreground again. If modes is set, it also restores the terminal's modes,
// which a command that was killed may have left changed. SIGTTOU must be ignored.
func (t *terminal) takeBack(modes bool) {
	if !t.isGiven() {
		return
	}
	t.given = false
	if unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own) == nil && modes && t.modes != nil {
		unix.IoctlSetTermios(t.fd(), writeModes, t.modes)
	}
}
