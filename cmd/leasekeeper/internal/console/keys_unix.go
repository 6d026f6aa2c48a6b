//go:build linux || darwin

package console

import (
	"os"

	"golang.org/x/sys/unix"
)

// prepareKeys makes the terminal pass on each key at once, also Ctrl-C, and makes a read return after a tenth of a second
// without a key. restore undoes that.
func prepareKeys(f *os.File) (restore func(), err error) {
	fd := int(f.Fd())
	was, err := unix.IoctlGetTermios(fd, readTermios)
	if err != nil {
		return nil, err
	}
	now := *was
	now.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
	now.Cc[unix.VMIN], now.Cc[unix.VTIME] = 0, 1
	if err := unix.IoctlSetTermios(fd, writeTermios, &now); err != nil {
		return nil, err
	}
	return func() { _ = unix.IoctlSetTermios(fd, writeTermios, was) }, nil // the terminal may be gone
}
