//go:build !linux

package sqlite

import "runtime"

// apart has nothing to find: only Linux mounts single files.
func apart(string) error { return nil }

// ownName returns an error if the path has another name than the one that the directory lists: on Windows a
// file has a short name as well. Elsewhere it has none, and the directory may list the letters of a name in
// another form than they were typed.
func ownName(path string) error {
	if runtime.GOOS != "windows" {
		return nil
	}
	return listed(path)
}
