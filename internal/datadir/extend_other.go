//go:build !linux

package datadir

// canExtend reports whether extend reserves blocks.
const canExtend = false

// extend does nothing: this system has no way to reserve blocks that all its file systems support.
func extend(uintptr, int64, int64) error { return nil }
