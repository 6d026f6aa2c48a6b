package datadir

import "golang.org/x/sys/unix"

// canExtend says whether extend does anything.
const canExtend = true

// extend reserves blocks for a part of a file and makes the file long enough to hold it. A file system that
// cannot do so says it, and nothing is changed.
func extend(fd uintptr, offset, length int64) error {
	return unix.Fallocate(int(fd), 0, offset, length)
}
