package claim

import (
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
)

// Store keeps the records of one namespace. Stores are written against it, and tested with package
// claimtest. All methods are safe for concurrent use and honour their context.
//
// Errors are of the kinds of package backend: [backend.ErrUnavailable] if the store cannot be asked, and
// surely nothing was or will be changed; [backend.ErrUnknownOutcome] if a write may have happened or may still
// happen; [backend.ErrCorrupt] if a record cannot be read; [backend.ErrInvalid] if the namespace was made for
// another mode or by a newer version.
type Store interface {
	// Scheme is that of its URLs, and its name in messages.
	Scheme() string
	// Get returns the record of a name as the last acknowledged write left it (linearizable), or one with the
	// zero Op if there is none.
	Get(ctx context.Context, name string) (Found, error)
	// Swap writes s.Record if the record of that name still has the op s.Old, or does not exist if that is
	// zero, and says whether it did. It is one atomic step. It is acknowledged only when it is durable, and
	// will not be undone by the failure of any machine the store is made to survive.
	Swap(ctx context.Context, s Swap) (bool, error)
	// List returns, in order of their bytes, up to limit records whose names begin with prefix and sort after
	// the given one. One that cannot be read has its error in Found, and does not hide the others. Fewer than
	// limit are the last.
	List(ctx context.Context, prefix, after string, limit int) ([]Found, error)
	// Observe keeps at as the instant at which domain d has first seen op in the record of name, unless one is
	// kept already for that very op, and returns the one that is kept. There is one for each name and domain.
	Observe(ctx context.Context, name string, d clock.Domain, op Op, at clock.Instant) (clock.Instant, error)
	// Sweep forgets what was observed of an op that the record of its name does not have any more, of the names that
	// begin with prefix and sort after the given one, up to and with through, or all of them if that is empty. A
	// boot of a machine is a domain of its own, so what it has observed would stay for ever otherwise. Nothing rests
	// on what was observed of an op that is gone; what is forgotten of one that is not, only makes others wait longer.
	Sweep(ctx context.Context, prefix, after, through string) error
	// RaiseFloor makes the namespace's floor at least t, durably, and returns it. Claims take tokens above it.
	RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error)
	// Remove deletes a record, with what was observed of it, if it still has that op, and says whether it did.
	// Only the floor protocol may use it.
	Remove(ctx context.Context, name string, old Op) (bool, error)
	// Close gives up what the store opened itself. Records stay.
	Close(ctx context.Context) error
}

// Found is what a store tells of one name.
type Found struct {
	Record Record
	Floor  backend.Token // of the namespace, read with the record or after it, never before
	// Left is, in store-clock mode, how long the record still lasts by the store's clock; it is over if that
	// is negative.
	Left time.Duration
	// Waiting says that some process has a ticket in the queue of the name. Only stores that are a [Queuer] know.
	Waiting bool
	Err     error // only from List: why it cannot be read; Record then has the name alone
}

// Swap is one conditional write.
type Swap struct {
	Old    Op
	Record Record
	// Owner says that the owner changes. Stores that can tell others, do so then.
	Owner bool
	// Ended says to write only if by the store's clock what is replaced is over. Only for stores that judge.
	Ended bool
	// Extends says that Record is what Old made it, but for Domain, Written, Expiry and TTL, and of course Op.
	// Stores may write those alone.
	Extends bool
	// Keeps says that Old left the name vacant, and that Pins and Past are what it made them. Stores may leave them
	// as they are.
	Keeps bool
	// Adds says that Past is what Old made it, with one tenure more at its beginning, and without the last if there
	// would be more than [MaxPast]. Stores may write that one alone.
	Adds bool
	// Above says to write only if the floor of the namespace is below the token of Record. Only for stores that
	// are [Bounded].
	Above bool
	// Alone says to write only if no process has a ticket in the queue of the name; a ticket of the writer's own may
	// count or not. Only for a write with Keeps, and for stores that are a [Queuer]; one that has no queues here
	// ignores it.
	Alone bool
}

// What follows are things that only some stores can do. They are found by type assertion.

// Batcher is a store that can do many conditional writes with one statement.
type Batcher interface {
	// SwapAll does many swaps of different names, each as if alone. done[i] tells whether swap i happened.
	// After an error that is [backend.ErrUnknownOutcome] any of them may have happened.
	SwapAll(ctx context.Context, swaps []Swap) (done []bool, err error)
}

// Gatherer is a store that can read many records with one statement.
type Gatherer interface {
	// GetAll returns the records of names, which differ, in their order, each as [Store.Get] would. One that cannot be
	// read has its error in Found, and does not hide the others.
	GetAll(ctx context.Context, names []string) ([]Found, error)
}

// Bounded is a store that can compare the floor of the namespace in the write itself, as [Swap.Above] asks for. A
// client then claims what it has left itself from what it knows of it, without a read.
type Bounded interface {
	// Bounds reports whether it can. It never changes.
	Bounds() bool
}

// Serial is a store that may carry out one write at a time.
type Serial interface {
	// Serial reports whether it does: a second attempt at a write then waits behind the first, over whatever
	// connection. It never changes.
	Serial() bool
}

// Notifier is a store that can say that something has changed. It is a hint and nothing rests on it.
type Notifier interface {
	// Listen calls changed, on the goroutine of its caller, whenever the owner of a name may have changed; an
	// empty name stands for any. It calls it once as soon as it listens. It returns when the context ends or
	// when it cannot listen.
	Listen(ctx context.Context, changed func(name string)) error
}

// Queuer is a store that keeps a queue of processes for each name. It is advisory and nothing rests on it: what a
// process waits for with it still is one conditional write of the record, which waiting never touches.
//
// Found.Waiting, Swap.Alone and Queue belong together: a store that is a Queuer knows all of them.
type Queuer interface {
	// Queues returns the processes' queues, as one process sees them, until it is closed. It takes at most one
	// connection, for all names. The error is [backend.ErrUnsupported] if this store has none here: a table or a right
	// is missing, or a pooler stands between.
	Queues(ctx context.Context) (Queues, error)
}

// Queues are the queues of all names of one namespace, as one process sees them. The process may have a ticket for each
// name. Tickets of a process that has ended are not deleted at once, but Pass recognizes them.
type Queues interface {
	// Join puts a ticket at the end of the queue of a name, and returns how it stands there.
	Join(ctx context.Context, name string) (Standing, error)
	// Leave deletes the process's tickets for a name up to the given place, and with before also all tickets of
	// other processes that are before it: the process has claimed the name, so that they are of no use any longer.
	Leave(ctx context.Context, name string, place int64, before bool) error
	// Pass deletes the ticket at the head of the queue of a name if it has that place, and all tickets for that name of
	// processes that have ended.
	Pass(ctx context.Context, name string, head int64) error
	// Look returns how all tickets of the process stand. It returns as soon as one is at the head of a queue whose name
	// nobody holds, or when a name has stayed without a holder for the time that the head of its queue has to claim it,
	// and at the latest after the given time. It sees a ticket that Join puts there meanwhile.
	Look(ctx context.Context, l Look) ([]Standing, error)
	// Close deletes the tickets that are left, as far as it can until ctx ends, and gives the connection up.
	Close(ctx context.Context)
}

// Look is how long and how often to look at the queues.
type Look struct {
	// For is how long at most.
	For time.Duration
	// Calm is for how long no queue has moved: the longer, the less often it needs to be looked.
	Calm time.Duration
	// Known are the places of tickets whose turn has come as the caller knows. They do not end the look.
	Known []int64
}

// Standing is how a ticket stands in the queue of a name.
type Standing struct {
	Name  string
	Place int64 // of the ticket
	Head  int64 // the lowest place in the queue
	Ahead int   // tickets before this one
	Found Found // the record, as [Store.Get] returns it
	Err   error // why the record cannot be read; Found then has the name alone
	// For is how long the look itself saw the same head, and the same record without a holder.
	For time.Duration
}

// Judge is a store whose own clock may decide ends (store-clock mode).
type Judge interface {
	// Judges reports whether this namespace is in store-clock mode. It never changes.
	Judges() bool
}

// Local is a store in a file of this machine.
type Local interface {
	// Domain returns what a process of domain d calls its domain in this store: d itself or, if the store may be
	// reached from under another kernel too, such as a virtual machine's, one that is told apart as well as d but
	// names no boot. There, who reaches the same file in another way must not take it for a boot that is over.
	Domain(d clock.Domain) clock.Domain
	// Gone reports whether no process of that domain can be running any more: it was another boot of this
	// very machine.
	Gone(d clock.Domain) bool
}

// Clocks is a store that keeps a clock record for each domain: the latest instant at which a process of that
// domain is known to have been writing. With it others infer earlier when a silent writer's leases end.
type Clocks interface {
	// Acknowledge makes the clock record of d at least at, on both clocks.
	Acknowledge(ctx context.Context, d clock.Domain, at clock.Instant) error
	// Acknowledged returns the clock record of d, or false.
	Acknowledged(ctx context.Context, d clock.Domain) (clock.Instant, bool, error)
}
