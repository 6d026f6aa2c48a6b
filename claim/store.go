package claim

import (
	"cmp"
	"context"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/queue"
)

// Store keeps the records of one namespace. A store for a database implements it, and package claimtest tests
// it. All methods are safe for concurrent use and honour their context.
//
// Errors are of the kinds of package backend:
//
//   - [backend.ErrUnavailable]: the store does not answer, and certainly nothing was or will be changed.
//   - [backend.ErrUnknownOutcome]: a write may have happened or may still happen.
//   - [backend.ErrCorrupt]: a record cannot be read.
//   - [backend.ErrInvalid]: the namespace was made for another mode or by a newer version.
type Store interface {
	// Scheme returns the scheme of the store's URLs, which is also its name in messages.
	Scheme() string
	// Get returns the record of a name as the last acknowledged write left it (linearizable). If there is none,
	// the record has the zero Op.
	Get(ctx context.Context, name string) (Found, error)
	// Swap writes s.Record if the record of that name still has the op s.Old, or does not exist if s.Old is
	// zero. It reports whether it wrote. It is one atomic step. It is acknowledged only when it is durable, so
	// no failure of a machine that the store is made to survive undoes it.
	Swap(ctx context.Context, s Swap) (bool, error)
	// List returns up to limit records whose names begin with prefix and sort after the given one, in order of
	// their bytes. A record that cannot be read has its error in Found, and does not hide the others. If List
	// returns fewer than limit, these are the last.
	List(ctx context.Context, prefix, after string, limit int) ([]Found, error)
	// Observe stores at as the instant at which domain d first saw op in the record of name, unless an instant
	// is stored already for that very op. It returns the stored one. There is one for each name and domain.
	Observe(ctx context.Context, name string, d clock.Domain, op Op, at clock.Instant) (clock.Instant, error)
	// Sweep deletes observations of ops that the records of their names no longer have. It covers the names
	// that begin with prefix and sort after the given one, up to and including through, or all of them if
	// through is empty. Without Sweep observations would stay for ever, because each boot of a machine is a
	// domain of its own. No decision depends on the observation of a replaced op. Deleting that of a current op
	// only makes others wait longer.
	Sweep(ctx context.Context, prefix, after, through string) error
	// RaiseFloor makes the namespace's floor at least t, durably, and returns it. Claims take tokens above it.
	RaiseFloor(ctx context.Context, t backend.Token) (backend.Token, error)
	// Remove deletes a record and its observations if the record still has that op, and reports whether it did.
	// Only the floor protocol may use it.
	Remove(ctx context.Context, name string, old Op) (bool, error)
	// Close releases what the store itself opened. Records stay.
	Close(ctx context.Context) error
}

// Found is what a store returns for one name.
type Found struct {
	Record Record
	Floor  backend.Token // of the namespace, read with the record or after it, never before
	// Left is how long the record still lasts by the store's clock, in store-clock mode only. A negative value
	// says that it has expired.
	Left time.Duration
	// Waiting says that some process has a ticket in the queue of the name. Only a [Queuer] knows.
	Waiting bool
	Err     error // only from List: why the record cannot be read; Record then has the name alone
}

// Swap is one conditional write.
type Swap struct {
	Old    Op
	Record Record
	// Owner says that the owner changes. A store that can notify others does so then.
	Owner bool
	// Ended says to write only if the replaced record has expired by the store's clock. It is set only for a
	// [Judge].
	Ended bool
	// Extends says that Record differs from the record that Old wrote only in Op, Domain, Written, Expiry and
	// TTL. A store may write these alone.
	Extends bool
	// Keeps says that Old left the name vacant, and that Pins, Past and Mark are unchanged since. A store may
	// leave these as they are.
	Keeps bool
	// Adds says that Past is that of the record that Old wrote, with one more tenure in front, and without the
	// last if there would be more than [MaxPast]. A store may write that one tenure alone.
	Adds bool
	// Above says to write only if the floor of the namespace is below the token of Record. It is set only for
	// stores that are [Bounded].
	Above bool
	// Alone says to write only if no process has a ticket in the queue of the name. A ticket of the writer's
	// own may count or not. It is set only together with Keeps, for stores that are a [Queuer]. A store that
	// has no queues in this namespace ignores it.
	Alone bool
}

// The interfaces below are abilities of only some stores. A type assertion finds them.

// Batcher is a store that can do many conditional writes with one statement.
type Batcher interface {
	// SwapAll does many swaps of different names, each as if it were the only one. done[i] reports whether swap
	// i happened. After [backend.ErrUnknownOutcome] any of them may have happened.
	SwapAll(ctx context.Context, swaps []Swap) (done []bool, err error)
}

// Gatherer is a store that can read many records with one statement.
type Gatherer interface {
	// GetAll returns the records of names, which are all different, in their order, each as [Store.Get] would.
	// A record that cannot be read has its error in Found, and does not hide the others.
	GetAll(ctx context.Context, names []string) ([]Found, error)
}

// Bounded is a store that can compare the floor of the namespace in the write itself, as [Swap.Above] requires.
// A client then claims a name that it released itself without a read.
type Bounded interface {
	// Bounds reports whether it can. The answer never changes.
	Bounds() bool
}

// Marker is a store that may be unable to keep [Record.Mark] in this namespace. Other stores always keep it.
type Marker interface {
	// CanMark returns nil, or a [*backend.UnsupportedError] that says what to do. The store then reads all marks as
	// zero, leaves those that other programs write as they are, and removes no record that may have one. The answer
	// never changes.
	CanMark() error
}

// Serial is a store that may execute one write at a time.
type Serial interface {
	// Serial reports whether it does: a second attempt at a write then waits behind the first, over whatever
	// connection. The answer never changes.
	Serial() bool
}

// Notifier is a store that can report changes. These are hints, and nothing depends on them.
type Notifier interface {
	// Listen calls changed, on the caller's goroutine, whenever the owner of a name may have changed; an empty
	// name stands for any. It calls changed once as soon as it listens. It returns when the context ends or
	// when it cannot listen.
	Listen(ctx context.Context, changed func(name string)) error
}

// Queuer is a store that keeps a queue of processes for each name. The queue is advisory, and nothing depends
// on it. What a waiting process waits for is still one conditional write of the record, which waiting never
// touches.
//
// Found.Waiting, Swap.Alone and Queue belong together: a store that is a Queuer supports all of them.
type Queuer interface {
	// Queues returns the queues as one process sees them, until they are closed. It takes at most one
	// connection, for all names. The error is [backend.ErrUnsupported] if this store has no queues here: a
	// table or a privilege is missing, or a pooler stands between.
	Queues(ctx context.Context) (Queues, error)
}

// PriorityQueuer is a [Queuer] whose queues may order tickets by a priority. They are then [PriorityQueues].
type PriorityQueuer interface {
	Queuer
	// Prioritizes reports whether queues order tickets by priority, as far as the store knows.
	Prioritizes() bool
}

// PriorityQueues are [Queues] that order tickets by priority.
type PriorityQueues interface {
	Queues
	// JoinWith adds a ticket behind all tickets with the same or a higher priority, and before all others. Join
	// adds the zero Ticket. Leave with before deletes tickets of the same priority only.
	JoinWith(ctx context.Context, name string, t Ticket) (Standing, error)
}

// Ticket says how a process waits for a name.
type Ticket struct {
	Priority backend.Priority
	// Holder is the id of the holder for which the process waits. [Preferrer] finds the ticket by it.
	Holder string
	// Every is how often the process wants to look at the queue, as [Look.Every] says later. Zero means that it
	// wants what the store does without it.
	Every time.Duration
}

// Patience returns how long the process may leave a free name at its turn, if the store only asks now and then.
func (t Ticket) Patience() time.Duration { return queue.PatienceOf(cmp.Or(t.Every, DefaultEvery)) }

// PlacesOfPriority is how many places each priority has. Those of a higher priority are lower, so a queue in the order
// of its places is in the order of priorities, also for programs that know none.
const PlacesOfPriority = 1 << 47

// FirstPlace returns the place before the first one of a priority. Those of the priority 0 count from 1.
func FirstPlace(p backend.Priority) int64 { return -int64(p) * PlacesOfPriority }

// PriorityOf returns the priority to which a place belongs. A preferred place belongs to none.
func PriorityOf(place int64) backend.Priority { return backend.Priority(-((place - 1) >> 47)) }

// FirstToLeave returns the first place that [Queues.Leave] with before deletes of others: the first one of the same priority.
// A preferred ticket deletes none before it, because another may have been preferred since.
func FirstToLeave(place int64) int64 {
	if IsPreferred(place) {
		return place
	}
	return place &^ (PlacesOfPriority - 1)
}

// FrontPlace is behind all preferred places and before all places of priorities.
const FrontPlace = -1 << 62

// IsPreferred reports whether a place is before those of all priorities: [Preferrer] has moved the ticket.
func IsPreferred(place int64) bool { return place < FrontPlace }

// Preferrer is a store that can move a ticket to the front of its queue.
type Preferrer interface {
	PriorityQueuer
	// Prefer moves the first ticket for a holder to before all other tickets of the name, and reports whether
	// there is one. It works for tickets of all processes, and changes no record. The next look of the ticket's
	// process shows a [Standing.Preferred]. The error is [backend.ErrUnsupported] if this store has no queues here.
	Prefer(ctx context.Context, name, holder string) (bool, error)
}

// Queues are the queues of all names of one namespace, as one process sees them. The process may have a ticket
// for each name. Tickets of a process that has ended are not deleted at once, but Pass recognizes them.
type Queues interface {
	// Join adds a ticket at the end of the queue of a name, and returns its standing.
	Join(ctx context.Context, name string) (Standing, error)
	// Leave deletes the process's tickets for a name up to the given place. With before it also deletes all
	// tickets of other processes before that place: the process has claimed the name, so they are of no further
	// use.
	Leave(ctx context.Context, name string, place int64, before bool) error
	// Pass deletes the ticket at the head of the queue of a name if it has that place. It also deletes all
	// tickets for that name of processes that have ended.
	Pass(ctx context.Context, name string, head int64) error
	// Look returns the standings of all tickets of the process. It returns as soon as one of these happens, and
	// at the latest after the given time:
	//
	//   - A ticket is at the head of a queue whose name has no holder.
	//   - A name has stayed without a holder for the time that the head of its queue has to claim it.
	//
	// Look also sees a ticket that Join adds meanwhile.
	Look(ctx context.Context, l Look) ([]Standing, error)
	// Close deletes the remaining tickets, as far as it can until ctx ends, and releases the connection.
	Close(ctx context.Context)
}

// Look says how long and how often to look at the queues.
type Look struct {
	// For is the longest time of the look.
	For time.Duration
	// Calm is for how long no queue has moved. The longer, the less often the store needs to look.
	Calm time.Duration
	// Known are the places of tickets whose turn has come, as the caller knows. They do not end the look.
	Known []int64
	// Every is how often a store that has to ask again and again does so for a process that is not the head of a
	// queue. The head's process asks more often, since all others wait for it. Zero means [DefaultEvery].
	Every time.Duration
}

// DefaultEvery is the default of [Look.Every].
const DefaultEvery = 500 * time.Millisecond

// Standing is the position of a ticket in the queue of a name.
type Standing struct {
	Name  string
	Place int64 // of the ticket
	Head  int64 // the lowest place in the queue
	Ahead int   // tickets before this one
	// Preferred says that [Preferrer] has moved the ticket to the front, perhaps to another place. The ticket keeps
	// that until it is deleted.
	Preferred bool
	Found     Found // the record, as [Store.Get] returns it
	Err       error // why the record cannot be read; Found then has the name alone
	// For is how long the look itself saw the same head, and the same record without a holder.
	For time.Duration
	// Patience is how long the process at the head may take to claim a free name, if that is longer than a store
	// needs that shows the turn at once. A process at the head that only asks now and then finds out later.
	Patience time.Duration
}

// ForeignLister is a store that lists locks of programs that do not use Leasekeeper, as [backend.ForeignLister] says.
type ForeignLister interface {
	ForeignKinds() []string
	ForeignLocks(ctx context.Context, limit int) (locks []backend.ForeignLock, more bool, err error)
}

// Judge is a store whose own clock may decide when leases end (store-clock mode).
type Judge interface {
	// Judges reports whether this namespace is in store-clock mode. The answer never changes.
	Judges() bool
}

// Local is a store in a file of this machine.
type Local interface {
	// Domain returns the name that a process of domain d uses for its domain in this store. That is d itself,
	// unless another kernel may reach the store too, such as a virtual machine's. Then it is a name that
	// differs as well as d does but names no boot. So a process that reaches the same file in another way does
	// not take that domain for a boot that has ended.
	Domain(d clock.Domain) clock.Domain
	// Gone reports whether no process of that domain can still be running: it was another boot of this very
	// machine.
	Gone(d clock.Domain) bool
}

// Clocks is a store that keeps a clock record for each domain: the latest instant at which a process of that
// domain is known to have been writing. From it others infer earlier when a silent writer's leases end.
type Clocks interface {
	// Acknowledge raises the clock record of d to at least at, on both clocks.
	Acknowledge(ctx context.Context, d clock.Domain, at clock.Instant) error
	// Acknowledged returns the clock record of d, or false if there is none.
	Acknowledged(ctx context.Context, d clock.Domain) (clock.Instant, bool, error)
}
