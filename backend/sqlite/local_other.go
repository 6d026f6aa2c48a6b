//go:build !linux

package sqlite

// locate knows nothing of file systems here. Nothing but a shorter wait after a boot rests on it.
func locate(string) (location, error) { return location{}, nil }
