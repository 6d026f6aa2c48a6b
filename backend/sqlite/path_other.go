//go:build !linux

package sqlite

import "runtime"

// apart has nothing to find: no system but Linux mounts single files.
func apart(string) error { return nil }

// ownName returns an error if the path has another name than the one that the folder lists: on Windows a file has a short
// name as well. Elsewhere it has none, and the folder may list the letters of a name in another form than they were typed.
func ownName(path string) error {
	if runtime.GOOS != "windows" {
		return nil
	}
	return listed(path)
}
