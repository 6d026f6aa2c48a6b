package backend

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/fence"
)

// The kinds of errors. The set is closed: for errors.Is, every error of a backend or of the root package is one
// of these, or the error of a context.
var (
	// ErrHeld says that another holder has the name. It is always a [*HeldError].
	ErrHeld = errors.New("held")
	// ErrLost says that the lease has ended and this holder must stop acting under it. It is final: the same
	// lease never comes back.
	ErrLost = errors.New("lease lost")
	// ErrStale says that a write carried the token of a holder that has been replaced.
	ErrStale = fence.ErrStale
	// ErrContention says that other clients changed the same record at each attempt. Nothing was changed; try
	// again later.
	ErrContention = errors.New("too much contention")
	// ErrUnknownOutcome says that a request may or may not have taken effect, now or later. It never means that
	// the request failed.
	ErrUnknownOutcome = errors.New("outcome unknown")
	// ErrPinned says that the name is pinned to its holder, so no other client can get it.
	ErrPinned = errors.New("pinned")
	// ErrInvalid says that the request makes no sense. Repeating it does not help.
	ErrInvalid = errors.New("invalid")
	// ErrCorrupt says that the data in the store cannot be read as a lease.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnsupported says that this backend cannot do this. It is always an [*UnsupportedError].
	ErrUnsupported = errors.New("not supported")
	// ErrUnavailable says that the store did not answer, or not with authority, and that nothing was changed.
	// Try again.
	ErrUnavailable = errors.New("unavailable")
	// ErrDenied says that the user of the request may not do this in the store: it lacks a right, or had it withdrawn. Nothing
	// was changed. The same request succeeds once the user has the right.
	ErrDenied = errors.New("denied")
	// ErrUnauthenticated says that the store does not know the user of the request: none was given, or there is no such user
	// with this password. Nothing was changed.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrDone says that a tick needs no run, because it, or a later one, was completed.
	ErrDone = errors.New("done")
	// ErrClosed says that the keeper or the backend was closed.
	ErrClosed = errors.New("closed")
)

// HeldError says who holds a claimed name. It is [ErrHeld] for errors.Is.
type HeldError struct {
	Name   string
	Holder Holder
	Token  Token
	// Ends is the longest time until the name can be taken if its holder falls silent now. The store has said
	// so, and it counts from the moment of its answer. Zero if the store cannot tell.
	Ends time.Duration
	// Self says that the holder is the very keeper that made the claim.
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

// UnsupportedError names an ability that a backend lacks. It is [ErrUnsupported] for errors.Is.
type UnsupportedError struct {
	Backend string // the scheme of its URLs, such as "etcd"
	What    string // the ability, such as "history"
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
