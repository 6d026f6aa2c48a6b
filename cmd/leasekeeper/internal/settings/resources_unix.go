//go:build unix

package settings

import "syscall"

// fileLimit returns the number of file descriptors that this process may open. The Go runtime has already raised the
// soft limit to the hard limit.
func fileLimit() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	return uint64(limit.Cur), nil
}
