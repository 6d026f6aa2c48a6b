//go:build !unix

package settings

import "errors"

// fileLimit is for systems that bound descriptors.
func fileLimit() (uint64, error) {
	return 0, errors.New("the system does not report a limit on file descriptors")
}
