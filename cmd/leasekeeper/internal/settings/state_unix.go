//go:build unix

package settings

import (
	"fmt"
	"os"
	"syscall"
)

// Protect removes the right of all users to write to a file or directory that belongs to this user. It returns an error
// if other users keep that right; the error recommends instead, another choice. A file that does not exist is later
// created with the right mode.
func Protect(path, instead string) error {
	const others = 0o002
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&others == 0 {
		return nil // opening the file reports its own errors
	}
	if about, ok := info.Sys().(*syscall.Stat_t); ok && int64(about.Uid) != int64(os.Geteuid()) {
		return fmt.Errorf("every user may write to %s, which belongs to user %d, so any user can take leases in it: let the owner run chmod o-w, or choose %s", path, about.Uid, instead)
	}
	if err := os.Chmod(path, info.Mode()&^others); err != nil {
		return fmt.Errorf("every user may write to %s, so any user can take leases in it, and chmod failed (%w): choose %s", path, err, instead)
	}
	return nil
}
