package datadir

import "golang.org/x/sys/unix"

// canExtend reports whether extend reserves blocks.
const canExtend = true

// extend reserves blocks for a part of a file and makes the file long enough to hold it. If the file system cannot do
// so, extend returns an error and changes nothing.
func extend(fd uintptr, offset, length int64) error {
	return unix.Fallocate(int(fd), 0, offset, length)
}
