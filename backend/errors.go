package backend

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/fence"
)

// The kinds of errors. The set is closed: every error that a backend or the root package returns is one of
// these for errors.Is, or the error of a context.
var (
	// ErrHeld says that somebody holds the name. It is always a [*HeldError].
	ErrHeld = errors.New("held")
	// ErrLost says that the lease has ended and this holder must stop acting under it. It is terminal: the
	// same lease never comes back.
	ErrLost = errors.New("lease lost")
	// ErrStale says that a write carried the token of a holder who has been succeeded.
	ErrStale = fence.ErrStale
	// ErrContention says that others changed the same record each time it was tried. Nothing was changed;
	// try again later.
	ErrContention = errors.New("too much contention")
	// ErrUnknownOutcome says that a request may or may not have taken effect, now or later. It is never a
	// report of failure.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrPinned says that the name is pinned to its holder, so it can neither pass on nor be taken.
	ErrPinned = errors.New("pinned")
	// ErrInvalid says that what was asked for makes no sense. Asking again does not help.
	ErrInvalid = errors.New("invalid")
	// ErrCorrupt says that what the store holds cannot be read as a lease.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnsupported says that this backend cannot do this. It is always an [*UnsupportedError].
	ErrUnsupported = errors.New("not supported")
	// ErrUnavailable says that the store did not answer, or not with authority, and that nothing was
	// changed. Try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrClosed says that the keeper or the backend was closed.
	ErrClosed = errors.New("closed")
)

// HeldError says who holds a name that was asked for. It is [ErrHeld] for errors.Is.
type HeldError struct {
	Name   string
	Holder Holder
	Token  Token
	// Ends is how long it lasts at the longest until the name can be taken if its holder falls silent now:
	// what the store said, at the moment of its answer. Zero if the store cannot tell.
	Ends time.Duration
	// Self says that the holder is the very keeper which asked.
	Self bool
}

func (e *HeldError) Error() string {
	name := Printable(e.Name)
	if e.Self {
		return fmt.Sprintf("%s is held already by this keeper (token %d): release it first, or share its lease", name, e.Token)
	}
	if e.Ends > 0 {
		return fmt.Sprintf("%s is held by %s (token %d), for up to %v unless renewed", name, e.Holder, e.Token, e.Ends.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s is held by %s (token %d)", name, e.Holder, e.Token)
}

// Is makes a HeldError [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// UnsupportedError names what cannot be done, and by which backend. It is [ErrUnsupported] for errors.Is.
type UnsupportedError struct {
	Backend string // the scheme of its URLs, such as "etcd"
	What    string // what was asked for, such as "history"
	Instead string // what the user can do instead; empty if nothing
}

func (e *UnsupportedError) Error() string {
	text := fmt.Sprintf("%s is not supported by the backend %s", e.What, e.Backend)
	if e.Instead != "" {
		text += ": " + e.Instead
	}
	return text
}

// Is makes an UnsupportedError [ErrUnsupported].
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
