//go:build !linux

package sqlite

// look knows nothing of file systems here. Nothing but a shorter wait after a boot rests on it.
func look(string) (place, error) { return place{}, nil }
