//go:build !unix

package settings

import "errors"

// fileLimit returns an error: this system reports no limit on file descriptors.
func fileLimit() (uint64, error) {
	return 0, errors.New("the system does not report a limit on file descriptors")
}
