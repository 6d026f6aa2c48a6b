//go:build !linux

package doctor

import (
	"os"
	"runtime"
)

// hasModes reports whether files of this system have permission bits.
const hasModes = runtime.GOOS != "windows"

// syncData syncs a file to the disk itself: on macOS past the disk's own cache.
func syncData(f *os.File) error { return f.Sync() }

// checkFileSystem says that only Linux is checked.
func checkFileSystem(string) Check { return skipped("file system", "only Linux tells its kind") }
