//go:build !unix

package settings

// Protect does nothing: here no permission bits say who may write to a file.
func Protect(string, string) error { return nil }
