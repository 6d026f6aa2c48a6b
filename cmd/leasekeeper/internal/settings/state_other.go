//go:build !unix

package settings

// Protect does nothing: this system has no permission bits.
func Protect(string, string) error { return nil }
