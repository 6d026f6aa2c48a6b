package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName is how long a name may be, in bytes.
const MaxName = 512

// CheckName returns nil if name can be leased on every backend, else an [ErrInvalid] that says why not. A
// name is a path: parts of printable UTF-8 with slashes between them, none of them empty, "." or "..".
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalid)
	case len(name) > MaxName:
		return fmt.Errorf("%w: the name has %d bytes, and %d are the most", ErrInvalid, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name %q is not UTF-8", ErrInvalid, name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%w: the name %q has a part that is empty, \".\" or \"..\": write it like jobs/nightly", ErrInvalid, name)
		}
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("%w: the name %q has a character that can not be printed", ErrInvalid, name)
		}
	}
	return nil
}
