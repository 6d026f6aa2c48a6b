package leasekeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
)

// The kinds of errors, for [errors.Is]. The set is closed: every error of this package is one of these, the
// error of a context, or what a [Func] returned.
var (
	// ErrHeld says that somebody holds the name. It is always a [*HeldError].
	ErrHeld = backend.ErrHeld
	// ErrLost says that the lease has ended, and that its holder must stop acting under it. A lost lease
	// never comes back.
	ErrLost = backend.ErrLost
	// ErrStale says that a write carried the token of a holder who has been succeeded.
	ErrStale = backend.ErrStale
	// ErrContention says that others changed the same record each time it was tried. Nothing was changed.
	ErrContention = backend.ErrContention
	// ErrUnknownOutcome says that a request may or may not have taken effect. It is never a report of failure.
	ErrUnknownOutcome = backend.ErrUnknownOutcome
	// ErrPinned says that the name is pinned to its holder.
	ErrPinned = backend.ErrPinned
	// ErrInvalid says that what was asked for makes no sense. Asking again does not help.
	ErrInvalid = backend.ErrInvalid
	// ErrCorrupt says that what the store holds cannot be read as a lease.
	ErrCorrupt = backend.ErrCorrupt
	// ErrUnsupported says that the store cannot do this. It is always an [*UnsupportedError].
	ErrUnsupported = backend.ErrUnsupported
	// ErrUnavailable says that the store did not answer, and that nothing was changed. Try again.
	ErrUnavailable = backend.ErrUnavailable
	// ErrClosed says that the keeper was closed.
	ErrClosed = backend.ErrClosed
)

// What is told about names, holders and errors is defined by package backend.
type (
	// Token is a fencing token: strictly increasing over successive holders of one name, for ever.
	Token = backend.Token
	// Holder is who holds a name.
	Holder = backend.Holder
	// Card tells people who a holder is.
	Card = backend.Card
	// Info tells about one name.
	Info = backend.Info
	// Event is a change of one name.
	Event = backend.Event
	// HeldError says who holds a name that was asked for.
	HeldError = backend.HeldError
	// UnsupportedError says what cannot be done, and by which backend.
	UnsupportedError = backend.UnsupportedError
)

// What can happen to a name: the kinds of an [Event].
const (
	Acquired  = backend.Acquired  // it has a new holder
	Vacated   = backend.Vacated   // it has none any more
	Announced = backend.Announced // its holder changed its card
	Resync    = backend.Resync    // events may have been missed: Info is how it is now
)

// ending is how a lease ended. It is an error, [ErrLost], that says why.
type ending struct {
	name     string
	token    Token
	why      string
	released bool // by its own holder
	closed   bool // with its keeper
}

func (e *ending) Error() string {
	return backend.Printable(fmt.Sprintf("%s: %v (token %d): %s", e.name, ErrLost, e.token, e.why))
}

func (e *ending) Is(target error) bool {
	return target == ErrLost || e.closed && target == ErrClosed
}

// errClosed is what a closed keeper answers.
var errClosed = fmt.Errorf("leasekeeper: the keeper is %w", ErrClosed)

// transient says whether the same request may succeed a little later.
func transient(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrContention) || errors.Is(err, ErrUnknownOutcome)
}

// overAfter is over for a call that failed for a reason of the store's before, which is the cause.
func overAfter(ctx context.Context, before error) error {
	if !errors.Is(before, ErrUnavailable) {
		return over(ctx)
	}
	return fmt.Errorf("%w: %w", over(ctx), before)
}

// over returns why a call's context has ended: by itself, or because the keeper was closed.
func over(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errClosed) {
		return errClosed
	}
	return ctx.Err()
}
