//go:build linux && !amd64

package chaos

import "errors"

// stepWall works on amd64 only.
func stepWall(int, int64) error {
	return errors.New("the wall clock of a single process can be stepped on amd64 only")
}
