//go:build linux || darwin

package supervise

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const terminalPath = "/dev/tty"

// terminal is the controlling terminal of this process, if it has one and is to share it. A nil one does
// nothing.
type terminal struct {
	file  *os.File
	own   int           // our process group
	given bool          // the command's group is in the foreground, as far as we know
	modes *unix.Termios // as they were in the beginning; nil if not known
}

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

func (t *terminal) isGiven() bool { return t != nil && t.given }

func (t *terminal) isOurs() bool {
	if t == nil {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd(), unix.TIOCGPGRP)
	return err == nil && group == t.own
}

// offer says whether the guard is to start the command in the foreground. Even if it fails to, the terminal
// may be that of a group that is gone, and must be taken back.
func (t *terminal) offer() bool {
	if !t.isOurs() {
		return false
	}
	t.given = true
	return true
}

// give makes the command's group the foreground group, if ours is.
func (t *terminal) give(group int) {
	if t.isOurs() {
		t.given = unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, group) == nil
	}
}

// takeBack makes our group the foreground group again. A command that could not tidy up may have left the
// terminal in a strange mode; then the modes are put back too. SIGTTOU must be ignored.
func (t *terminal) takeBack(modes bool) {
	if !t.isGiven() {
		return
	}
	t.given = false
	if unix.IoctlSetPointerInt(t.fd(), unix.TIOCSPGRP, t.own) == nil && modes && t.modes != nil {
		unix.IoctlSetTermios(t.fd(), writeModes, t.modes)
	}
}
