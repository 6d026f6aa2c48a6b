package fence

import (
	"errors"
	"fmt"
	"strconv"
)

// Token is a fencing token. It strictly increases over successive holders of one name, forever. Zero is no token.
type Token uint64

// The kinds of errors. The set is closed: for errors.Is every error of this package is one of these, the error
// of a context, or the error of the caller's own function.
var (
	// ErrStale says that a write carried the token of a holder that has been replaced. A holder that gets it
	// has lost its lease and must not repeat the write. It is always a [*StaleError].
	ErrStale = errors.New("stale fencing token")
	// ErrInvalid says that a token or a name is malformed. Repeating the call does not help.
	ErrInvalid = errors.New("invalid")
	// ErrUnsaved says that a mark could not be saved, so the write was not admitted and has changed nothing.
	// It may be repeated with the same token, whether or not the mark was raised.
	ErrUnsaved = errors.New("mark not saved")
	// ErrFull says that a guard has reached its limit of names, so the write was not admitted and has changed
	// nothing.
	ErrFull = errors.New("too many names")
)

// StaleError names the refused token and the newer one that the resource has seen. It is [ErrStale] for errors.Is.
type StaleError struct {
	// Name is the name of the resource, as the package that refused it writes it.
	Name string
	// Token is the token of the refused write.
	Token Token
	// Highest is the highest token that the resource has seen; it is above Token.
	Highest Token
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d reached %q after token %d: the name has a new holder, so stop, and do not repeat this write",
		ErrStale, e.Token, e.Name, e.Highest)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// String returns the token in decimal, as [ParseToken] reads it.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// ParseToken reads a token: a decimal number from 1 to 18446744073709551615, without sign, spaces or leading
// zeros. For any other text it returns [ErrInvalid].
func ParseToken(s string) (Token, error) {
	t, err := strconv.ParseUint(s, 10, 64)
	if err != nil || t == 0 || Token(t).String() != s {
		const shown = 40 // more than any token has digits
		if len(s) > shown {
			s = s[:shown] + "…"
		}
		return 0, fmt.Errorf("%w: %q is no fencing token: it must be a decimal number from 1 to 18446744073709551615, without sign, spaces or leading zeros", ErrInvalid, s)
	}
	return Token(t), nil
}

// MaxName is the length of the longest name that a guard accepts, in bytes.
const MaxName = 1024

// validate returns [ErrInvalid] if the name or the token is malformed.
func validate(name string, t Token) error {
	switch {
	case t == 0:
		return fmt.Errorf("%w: 0 is no fencing token: send the token of the lease under which %.100q is written", ErrInvalid, name)
	case name == "":
		return fmt.Errorf("%w: the name for token %d is empty: name the resource", ErrInvalid, t)
	case len(name) > MaxName:
		return fmt.Errorf("%w: the name %.40q… has %d bytes: use at most %d", ErrInvalid, name, len(name), MaxName)
	}
	return nil
}
