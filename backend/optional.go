package backend

import (
	"context"

	"github.com/leasekeeper/leasekeeper/clock"
)

// What only some backends can do. [Can] finds these by type assertion. A backend that has the method of one
// but cannot do it either, say because of how its store is set up, answers with an [*UnsupportedError].

// Can returns b as T, which is one of [Watcher], [Historian], [Announcer], [Resumer], [Revoker], [Pinner]
// and [Transferrer], or an [*UnsupportedError] that names what b cannot do.
func Can[T any](b Backend) (T, error) {
	t, ok := b.(T)
	if !ok {
		return t, &UnsupportedError{Backend: b.Scheme(), What: thing[T]()}
	}
	return t, nil
}

// What [UnsupportedError.What] says for each of the interfaces below.
const (
	Watch    = "watch"
	History  = "history"
	Announce = "announce"
	Resume   = "resume"
	Revoke   = "revoke"
	Pin      = "pin"
	Transfer = "transfer"
)

func thing[T any]() string {
	switch any((*T)(nil)).(type) {
	case *Watcher:
		return Watch
	case *Historian:
		return History
	case *Announcer:
		return Announce
	case *Resumer:
		return Resume
	case *Revoker:
		return Revoke
	case *Pinner:
		return Pin
	case *Transferrer:
		return Transfer
	}
	panic("backend: Can is only for the interfaces that this package names")
}

// Clocked is a backend for tests, with clocks that are moved by hand. The root package counts by them too.
// A store that is used for anything but tests must not be one.
type Clocked interface {
	// Clock returns the clocks, or nil if this one goes by the machine's own.
	Clock() Clock
}

// Clock is the pair of clocks of a [Clocked] backend.
type Clock interface {
	Now() clock.Instant
	// Moved returns a channel that is closed when the clocks are next moved by hand. Timers know nothing of
	// that.
	Moved() <-chan struct{}
}

// Cautious is a backend that found out, when it was opened, how its store can fall short of what it is asked for,
// and is used nevertheless.
type Cautious interface {
	// Cautions says so in a sentence each, for people. It never changes.
	Cautions() []string
}

// Watcher tells what happens to names.
type Watcher interface {
	// Watch calls report for how each name that begins with prefix is now (Resync), and then for each of its
	// changes, in order per name, until the context ends or the store cannot go on. It does so on the
	// goroutine of its caller. A report that blocks holds back the rest, and is then caught up with by Resync
	// events: what is kept meanwhile has a limit.
	Watch(ctx context.Context, prefix string, report func(Event)) error
}

// Historian tells who held a name before.
type Historian interface {
	// History returns the last tenures of a name, newest first, at most limit, and no more than the store
	// keeps.
	History(ctx context.Context, name string, limit int) ([]Tenure, error)
}

// Announcer changes the free text on the card of the holder.
type Announcer interface {
	Announce(ctx context.Context, l Lease, text string) error
}

// Resumer continues a tenure that another keeper, or an earlier process, began.
type Resumer interface {
	// Resume returns a reference to the lease that holds the name under this token, and renews it. [ErrLost]
	// says that another token holds it, or none.
	Resume(ctx context.Context, name string, t Token, by Holder) (Lease, Grant, error)
}

// Revoker ends the tenure of somebody else.
type Revoker interface {
	// Revoke refuses all further renewals of the holder and frees the name when what it was promised has
	// ended; with now it frees it at once, though its holder may still act. token is who is meant; 0 means
	// no matter which process holds it.
	Revoke(ctx context.Context, name string, token Token, reason string, now bool) error
}

// Pinner keeps a name with its holder.
type Pinner interface {
	// Pin keeps the name from expiring, from being revoked and from being transferred, until Unpin or until
	// its holder releases it; a store may then keep the pin for the next holder. [ErrInvalid] says that nobody holds it. What is kept from happening is
	// [ErrPinned]; to somebody who claims the name it is held.
	Pin(ctx context.Context, name, reason string) error
	Unpin(ctx context.Context, name string) error
}

// Transferrer hands a name on.
type Transferrer interface {
	// Transfer ends the lease and makes the next in line the holder, in one step. Its holder must not act
	// under it any more when Transfer is called: nobody waits for the end of what it was promised.
	// [ErrInvalid] says that nobody stands in line; the lease is then kept.
	Transfer(ctx context.Context, l Lease) error
}
