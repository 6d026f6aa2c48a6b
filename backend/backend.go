package backend

import (
	"context"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/fence"
)

// Token is a fencing token: strictly increasing over successive holders of one name, for ever.
type Token = fence.Token

// ID is chosen at random for each claim, so that repeating the claim never makes two leases. The zero ID is not
// valid.
type ID [16]byte

// Holder is the holder of a name, or a claimer.
type Holder struct {
	// ID tells holders apart. Two keepers with the same ID are still two holders.
	ID   string
	Card Card
}

// String shows the id, and the host and process if they are known.
func (h Holder) String() string {
	if h.Card.Host == "" {
		return Printable(h.ID)
	}
	return Printable(fmt.Sprintf("%s (pid %d on %s)", h.ID, h.Card.PID, h.Card.Host))
}

// Card tells people who a holder is. No decision depends on it.
type Card struct {
	Host    string
	PID     int
	Started time.Time // wall clock, for people to read
	Text    string    // any text; Announce sets it
}

// Claim is a request to hold a name.
type Claim struct {
	ID     ID
	Name   string // valid by [CheckName]
	Holder Holder
	TTL    time.Duration // positive, within the backend's [Limits]
	// Wait says to wait in the queue if the name is held. Otherwise a claim that returns a [*HeldError] leaves
	// nothing in the store.
	Wait bool
	// Priority orders those who wait: the claim with the highest is next, and among equals the one that came
	// first. It never ends a tenure. Only backends whose [Limits] have Priorities get another one than 0.
	Priority Priority
}

// Priority is the priority of a waiting claim; most programs leave it 0.
type Priority int16

// Lease is a backend's own reference to one claim in its store. It is immutable, safe for concurrent use, and
// useful only to the backend that made it.
type Lease interface {
	Name() string
}

// Grant is the store's answer to a claim.
type Grant struct {
	// Held says that the claimer holds the name. Otherwise the claim waits in the queue. Its lease must then be
	// renewed like any other, and [Backend.Await] returns when its turn has come.
	Held  bool
	Token Token // if held
	Place int   // while waiting: how many claims are before this one, including the holder; 0 if unknown
	TTL   time.Duration
	// Until is the end on the clocks of this process, if the backend itself has counted it; the root package
	// then relies on it unchanged. The zero Instant means: count TTL from before the request.
	Until clock.Instant
}

// Renewal is the store's answer to the renewal of one lease.
type Renewal struct {
	TTL   time.Duration // the granted one, as in [Grant]
	Until clock.Instant // as in [Grant]
	// Err is nil if the lease was renewed. It is [ErrLost] only if the store has said with authority that the
	// lease has ended. Any other error leaves the old deadline unchanged.
	Err error
}

// Limits are the TTLs that a backend accepts, and how it executes requests.
type Limits struct {
	MinTTL, MaxTTL time.Duration
	// Granularity is the unit to which TTLs are rounded up.
	Granularity time.Duration
	// OneWay says that the store executes requests one after another, like a file that has one writer at a
	// time. A second attempt at an overdue renewal could only wait behind the first, so the root package makes
	// none.
	OneWay bool
	// Priorities says that the store orders waiting claims by [Claim.Priority].
	Priorities bool
}

// Backend is one store of leases. All methods are safe for concurrent use and return soon after their context
// has ended. Errors are of the kinds in this package, and none shows a password.
type Backend interface {
	// Scheme returns the scheme of the backend's URLs, which is also its name in messages.
	Scheme() string
	Limits() Limits
	// Claim claims a name. [ErrUnknownOutcome] comes with a Lease, which must be released, or claimed again
	// with the same ID. Any other error comes without one and has left nothing in the store.
	Claim(ctx context.Context, c Claim) (Lease, Grant, error)
	// Await returns when a waiting lease holds its name. It does not renew: unless the Grant has Until, the
	// deadline stays where the last renewal put it. [ErrLost] says that the lease no longer waits.
	Await(ctx context.Context, l Lease) (Grant, error)
	// Renew renews many leases of this backend in as few messages as it can. It calls report with the index of
	// a lease, at most once for each, as the answers come. It returns when all are reported, or with the error
	// that prevented the rest. One lease in trouble does not delay the report of another.
	//
	// Renew waits for answers until ctx ends, which is when the leases have expired. An answer counts until
	// then, however slow the store is. If an answer is overdue, a second call for the same leases comes while
	// the first goes on, and its context is one of [Hedge]. With [Limits.OneWay] no such call comes. A hedge
	// uses another endpoint or connection, if there is one. If the store shows that the first call has renewed
	// a lease, the second may report that, with the Until that the first would have reported. If ctx ends with
	// answers missing, the next Renew uses another connection to the store. Renew keeps neither the slice nor
	// the function after it has returned.
	Renew(ctx context.Context, leases []Lease, report func(i int, r Renewal)) error
	// Release releases the name, or leaves the queue. It is idempotent; a lease that has ended is no error.
	// After [ErrUnknownOutcome] the caller should repeat it.
	Release(ctx context.Context, l Lease) error
	// Get returns what the store knows of a name with authority.
	Get(ctx context.Context, name string) (Info, error)
	// List returns up to limit names that begin with prefix and sort after the given one, in order. The held
	// ones are among them, others need not be. A name that cannot be read has its Err, and does not hide the
	// others. If List returns fewer than limit, these are the last.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)
	// Close releases connections. Leases stay as they are.
	Close(ctx context.Context) error
}

// Info is the state of one name.
type Info struct {
	Name   string
	Held   bool
	Holder Holder        // of the holder, if held
	Token  Token         // of the holder, if held; else the last one if the store remembers it
	TTL    time.Duration // granted, if held
	// Remaining is how long the lease lasts if it is not renewed, as the store counts it at its answer, if
	// held. It is negative if the store cannot tell.
	Remaining time.Duration
	Waiting   int    // length of the queue; -1 if the store cannot tell
	Pinned    string // the reason, if pinned
	// Err is why the name cannot be read, such as [ErrCorrupt]. Only List sets it, and then Name is the only
	// other field with a meaning.
	Err error
}

// EventKind is what happened to a name.
type EventKind uint8

// The kinds of events.
const (
	_         EventKind = iota
	Acquired            // it has a new holder
	Vacated             // it no longer has a holder
	Announced           // its holder changed its card
	Resync              // events may have been missed: Info is the present state
)

// Event is a change of one name. Info is the state after the change.
type Event struct {
	Kind EventKind
	Info Info
	Why  Reason // if Vacated, or if Acquired from another holder; empty if the store cannot tell
}

// Reason is why a tenure ended.
type Reason string

// The reasons why a tenure ends.
const (
	Released    Reason = "released"
	Expired     Reason = "expired"
	Revoked     Reason = "revoked"
	Transferred Reason = "transferred"
	Deleted     Reason = "deleted" // its record was removed without this library
)

// Tenure is one past or present tenure of a name.
type Tenure struct {
	Token  Token
	Holder Holder
	// From and To are wall-clock times of the process that decided, for people to read. To is zero while the
	// tenure lasts.
	From, To time.Time
	Why      Reason
	Note     string // the reason that was given with a revocation
}
