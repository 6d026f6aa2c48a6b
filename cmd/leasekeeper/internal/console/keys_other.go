//go:build !linux && !darwin

package console

import (
	"errors"
	"os"
)

// prepareKeys returns an error: on this system a live view reads no keys, and Ctrl-C ends the process.
func prepareKeys(*os.File) (restore func(), err error) { return nil, errors.ErrUnsupported }
