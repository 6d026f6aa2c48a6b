package backend

import (
	"context"

	"github.com/leasekeeper/leasekeeper/clock"
)

// The interfaces below are abilities of only some backends; [Can] finds them by type assertion. A backend may
// have the method and still lack the ability, for example because of how its store is set up. It then returns
// an [*UnsupportedError].

// Can returns b as T, which is one of [Watcher], [Historian], [Announcer], [Resumer], [Revoker], [Pinner],
// [Transferrer], [Marker], [MarkLister], [Finisher], [Preferrer], [QueueLister] and [ForeignLister]. If b lacks that ability it returns an [*UnsupportedError] that names it.
func Can[T any](b Backend) (T, error) {
	t, ok := b.(T)
	if !ok {
		return t, &UnsupportedError{Backend: b.Scheme(), What: thing[T]()}
	}
	return t, nil
}

// The values of [UnsupportedError.What] for the interfaces below.
const (
	Watch     = "watch"
	History   = "history"
	Announce  = "announce"
	Resume    = "resume"
	Revoke    = "revoke"
	Pin       = "pin"
	Transfer  = "transfer"
	Marks     = "recording completed ticks"
	Finishes  = "holding a name after its release"
	Prefer    = "choosing the next waiter"
	ListMarks = "listing marks"
	Queue     = "listing waiting claims"
	Foreign   = "listing locks of other programs"
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
	case *Marker:
		return Marks
	case *MarkLister:
		return ListMarks
	case *Finisher:
		return Finishes
	case *Preferrer:
		return Prefer
	case *QueueLister:
		return Queue
	case *ForeignLister:
		return Foreign
	}
	panic("backend: Can is only for the interfaces that this package names")
}

// Clocked is a backend for tests, with clocks that are moved by hand. The root package uses them too. A store
// that is not for tests must not be one.
type Clocked interface {
	// Clock returns the clocks, or nil if this backend uses the machine's own.
	Clock() Clock
}

// Clock is the pair of clocks of a [Clocked] backend.
type Clock interface {
	Now() clock.Instant
	// Moved returns a channel that is closed when the clocks are next moved by hand. Timers do not notice that.
	Moved() <-chan struct{}
}

// Cautious is a backend that found out, when it was opened, how its store may break its promises, and that is
// used all the same.
type Cautious interface {
	// Cautions returns one sentence for people about each of these. The result never changes.
	Cautions() []string
}

// Watcher reports what happens to names.
type Watcher interface {
	// Watch calls report for the present state of each name that begins with prefix (Resync), and then for each
	// of its changes, in order per name. It does so on the caller's goroutine, until the context ends or the
	// store fails. A report that blocks delays the others. The backlog is bounded; Resync events make up for
	// events that did not fit.
	Watch(ctx context.Context, prefix string, report func(Event)) error
}

// Historian lists earlier holders of a name.
type Historian interface {
	// History returns the last tenures of a name, newest first: at most limit, and no more than the store
	// keeps.
	History(ctx context.Context, name string, limit int) ([]Tenure, error)
}

// Announcer changes the text on the card of the holder.
type Announcer interface {
	Announce(ctx context.Context, l Lease, text string) error
}

// Resumer continues a tenure that another keeper, or an earlier process, began.
type Resumer interface {
	// Resume returns a reference to the lease that holds the name under this token, and renews it. [ErrLost]
	// says that the name has another token, or no holder.
	Resume(ctx context.Context, name string, t Token, by Holder) (Lease, Grant, error)
}

// Revoker ends the tenure of another holder.
type Revoker interface {
	// Revoke refuses all further renewals of the holder and frees the name when the holder's promise has
	// passed. With now it frees the name at once, though its holder may still act. token is that of the tenure
	// to end; 0 means the present one.
	Revoke(ctx context.Context, name string, token Token, reason string, now bool) error
}

// Pinner keeps a name with its holder.
type Pinner interface {
	// Pin keeps the name from expiring, from being revoked and from being transferred, until Unpin or until its
	// holder releases it. A store may then keep the pin for the next holder. [ErrInvalid] says that the name
	// has no holder. A call that a pin prevents returns [ErrPinned]; to a claimer the name is held.
	Pin(ctx context.Context, name, reason string) error
	Unpin(ctx context.Context, name string) error
}

// Transferrer hands a name over to the next in the queue.
type Transferrer interface {
	// Transfer ends the lease and makes the next in the queue the holder, in one step. The old holder must have
	// stopped acting when it calls Transfer: the new one does not wait for the end of the old promise.
	// [ErrInvalid] says that the queue is empty; the lease is then kept.
	Transfer(ctx context.Context, l Lease) error
}

// Preferrer chooses the next holder of a name among those who wait.
type Preferrer interface {
	// Prefer moves the first waiting claim whose holder has the id to before all other waiting claims of the name,
	// whatever their priorities. It changes nothing for the holder of the name. [ErrInvalid] says that no such
	// claim waits, or that a claim of another program stands before it that cannot be overtaken.
	Prefer(ctx context.Context, name, to string) error
}

// QueueLister lists the claims that wait for a name.
type QueueLister interface {
	// Queue returns the claims that wait for a name, the next holder first: at most limit, and no more than the store lists.
	// The queue of a name without waiting claims is empty.
	Queue(ctx context.Context, name string, limit int) ([]Waiter, error)
}

// Waiter is a claim that waits for a name.
type Waiter struct {
	Holder   Holder
	Priority Priority
	// Preferred says that [Preferrer] has moved the claim to before all others.
	Preferred bool
	// Foreign says that another program waits, which does not use Leasekeeper. No claim can overtake it.
	Foreign bool
}
