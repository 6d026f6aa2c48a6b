package fence

import (
	"errors"
	"fmt"
	"strconv"
)

// Token is a fencing token: strictly increasing over successive holders of one name, for ever. Zero is no
// token.
type Token uint64

// The kinds of errors. The set is closed: every error of this package is one of these for errors.Is, or the
// error of a context, or what the caller's own function returned.
var (
	// ErrStale says that a write carried the token of a holder who has been succeeded. It must not be
	// repeated: a holder that gets it has lost its lease. It is always a [*StaleError].
	ErrStale = errors.New("stale fencing token")
	// ErrInvalid says that a token or a name is none. Asking again does not help.
	ErrInvalid = errors.New("invalid")
	// ErrUnsaved says that a mark could not be saved, so the write that needed it was not admitted and has
	// changed nothing. It may be repeated with the same token; whether the mark was raised is not known,
	// and does not matter for that.
	ErrUnsaved = errors.New("mark not saved")
	// ErrFull says that a guard has as many names as it may have, so the write was not admitted and has
	// changed nothing.
	ErrFull = errors.New("too many names")
)

// StaleError says which token was refused, and for the sake of which. It is [ErrStale] for errors.Is.
type StaleError struct {
	// Name is what was to be written, in the words of the resource that refused.
	Name string
	// Token is what the write carried.
	Token Token
	// Highest is the highest token seen there, always above Token.
	Highest Token
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: token %d came to %q after token %d: the name has a new holder, so stop, and do not repeat this write",
		ErrStale, e.Token, e.Name, e.Highest)
}

// Is makes a StaleError [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// String returns the token in decimal, as [ParseToken] reads it.
func (t Token) String() string { return strconv.FormatUint(uint64(t), 10) }

// ParseToken reads a token from its one spelling: decimal digits without sign, spaces or leading zeros, from
// 1 to 18446744073709551615. Everything else is [ErrInvalid].
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

// MaxName is the length of the longest name that a guard takes, in bytes.
const MaxName = 1024

// validate finds out whether a guard can be asked about a name and a token.
func validate(name string, t Token) error {
	switch {
	case t == 0:
		return fmt.Errorf("%w: 0 is no fencing token: send the token of the lease under which %.100q is written", ErrInvalid, name)
	case name == "":
		return fmt.Errorf("%w: the name of what token %d writes to is empty: name the resource", ErrInvalid, t)
	case len(name) > MaxName:
		return fmt.Errorf("%w: the name %.40q… has %d bytes: use at most %d", ErrInvalid, name, len(name), MaxName)
	}
	return nil
}
