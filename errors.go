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
	// ErrHeld means that another claim holds the name. It is always a [*HeldError].
	ErrHeld = backend.ErrHeld
	// ErrLost means that the lease has ended: its holder must stop acting under it. A lost lease never comes back.
	ErrLost = backend.ErrLost
	// ErrStale means that a write carried the token of an earlier holder.
	ErrStale = backend.ErrStale
	// ErrContention means that other clients changed the same record at each attempt. Nothing was changed.
	ErrContention = backend.ErrContention
	// ErrUnknownOutcome means that a request may or may not have taken effect. It is never a report of failure.
	ErrUnknownOutcome = backend.ErrUnknownOutcome
	// ErrPinned means that the name is pinned to its holder.
	ErrPinned = backend.ErrPinned
	// ErrInvalid means that an argument is wrong. The same call fails again.
	ErrInvalid = backend.ErrInvalid
	// ErrCorrupt means that a record in the store cannot be read as a lease.
	ErrCorrupt = backend.ErrCorrupt
	// ErrUnsupported means that the store cannot do this. It is always an [*UnsupportedError].
	ErrUnsupported = backend.ErrUnsupported
	// ErrUnavailable means that the store did not answer, and that nothing was changed. Try again.
	ErrUnavailable = backend.ErrUnavailable
	// ErrDenied means that the user of this keeper may not do this in the store. Nothing was changed. The error of a lease that
	// was lost because a right was withdrawn is both this and [ErrLost].
	ErrDenied = backend.ErrDenied
	// ErrUnauthenticated means that the store does not know the user of this keeper: none was given, or there is no such user
	// with this password. Nothing was changed.
	ErrUnauthenticated = backend.ErrUnauthenticated
	// ErrDone means that the tick of a [Keeper.Once], or a later one, was completed before. It is always a [*DoneError].
	ErrDone = backend.ErrDone
	// ErrClosed means that the keeper was closed.
	ErrClosed = backend.ErrClosed
)

// Package backend defines what is known about names, holders and errors.
type (
	// Token is a fencing token: strictly increasing over successive holders of one name, forever.
	Token = backend.Token
	// Holder identifies the process that holds a name.
	Holder = backend.Holder
	// Card describes a holder to people.
	Card = backend.Card
	// Info is the state of one name.
	Info = backend.Info
	// Event is a change of one name.
	Event = backend.Event
	// Tick identifies one run of recurring work: a time, or a number.
	Tick = backend.Tick
	// Mark is the highest completed tick of a name.
	Mark = backend.Mark
	// Priority is the priority of a waiting claim.
	Priority = backend.Priority
	// Tenure is one entry of the history of a name.
	Tenure = backend.Tenure
	// HeldError names the holder of a name that a claim asked for.
	HeldError = backend.HeldError
	// UnsupportedError names what a backend cannot do.
	UnsupportedError = backend.UnsupportedError
)

// What can happen to a name: the kinds of an [Event].
const (
	Acquired  = backend.Acquired  // it has a new holder
	Vacated   = backend.Vacated   // it no longer has a holder
	Announced = backend.Announced // its holder changed its card
	Resync    = backend.Resync    // events may have been missed: Info is the current state
)

// ending is the end of a lease and its reason. As an error it is [ErrLost].
type ending struct {
	name     string
	token    Token
	why      string
	released bool // by its own holder
	closed   bool // with its keeper
	early    bool // by HoldAtMost, WithHealth or Transfer
	denied   bool // because its user may no longer hold the name
}

func (e *ending) Error() string {
	what := ErrLost.Error()
	if e.early {
		what = "tenure ended early"
	}
	return backend.Printable(fmt.Sprintf("%s: %s (token %d): %s", e.name, what, e.token, e.why))
}

func (e *ending) Is(target error) bool {
	return target == ErrLost || e.closed && target == ErrClosed || e.denied && target == ErrDenied
}

// errKeeperClosed is the error of every call to a closed keeper.
var errKeeperClosed = fmt.Errorf("leasekeeper: the keeper is %w", ErrClosed)

// transient reports whether the same request may succeed a little later.
func transient(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrContention) || errors.Is(err, ErrUnknownOutcome)
}

// endedAfter is endedBy for a call whose last attempt failed with the store's error before: that error is the cause.
func endedAfter(ctx context.Context, before error) error {
	if !errors.Is(before, ErrUnavailable) {
		return endedBy(ctx)
	}
	return fmt.Errorf("%w: %w", endedBy(ctx), before)
}

// endedBy returns why a call's context has ended: by itself, or because the keeper was closed.
func endedBy(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errKeeperClosed) {
		return errKeeperClosed
	}
	return ctx.Err()
}
