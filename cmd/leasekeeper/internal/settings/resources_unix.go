//go:build unix

package settings

import "syscall"

// fileLimit returns how many descriptors this process may have. The runtime has raised the limit as far as it may.
func fileLimit() (uint64, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	return uint64(limit.Cur), nil
}
