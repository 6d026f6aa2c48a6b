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

// ID is chosen at random for each request to hold a name, so that asking twice never makes two leases. The
// zero ID is not valid.
type ID [16]byte

// Holder is who holds a name, or wants to.
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

// Card tells people who a holder is. Nothing decides by it.
type Card struct {
	Host    string
	PID     int
	Started time.Time // wall clock, to be shown
	Text    string    // free; what Announce sets
}

// Claim asks for a name.
type Claim struct {
	ID     ID
	Name   string // valid by [CheckName]
	Holder Holder
	TTL    time.Duration // positive, within the backend's [Limits]
	// Wait says to stand in line if the name is held. Otherwise nothing at all is left behind in the store
	// when the answer is a [*HeldError].
	Wait bool
}

// Lease is a backend's own reference to what its store keeps for one claim. It is immutable, safe for
// concurrent use, and of use only to the backend that made it.
type Lease interface {
	Name() string
}

// Grant is what the store answered to a claim.
type Grant struct {
	// Held says that the name is the claimer's. Otherwise the claim stands in line, the lease must be
	// renewed like any other, and [Backend.Await] tells when it is its turn.
	Held  bool
	Token Token // if held
	Place int   // if in line: how many are before this one, the holder among them; 0 if unknown
	TTL   time.Duration
	// Until is the end on the clocks of this process, if the backend counted it itself; the root package
	// then relies on it as it is. The zero Instant means: count TTL from before the request.
	Until clock.Instant
}

// Renewal is what the store answered to the renewal of one lease.
type Renewal struct {
	TTL   time.Duration // the granted one, as in [Grant]
	Until clock.Instant // as in [Grant]
	// Err is nil if it was renewed; [ErrLost] only if the store has said with authority that the lease is
	// gone; anything else leaves the old deadline as it was.
	Err error
}

// Limits are what a backend accepts.
type Limits struct {
	MinTTL, MaxTTL time.Duration
	// Granularity is what TTLs are rounded up to.
	Granularity time.Duration
	// OneWay says that the store has one way in, and that whatever is sent to it queues there: a file that has one
	// writer at a time. A second attempt at an overdue renewal could only wait behind the first, so none is made.
	OneWay bool
}

// Backend is one store of leases. All methods are safe for concurrent use and return soon after their
// context has ended. Errors are of the kinds in this package, and none shows a password.
type Backend interface {
	// Scheme is that of its URLs, and its name in messages.
	Scheme() string
	Limits() Limits
	// Claim asks for a name. An error that is [ErrUnknownOutcome] comes with a Lease, which must be released
	// or claimed again with the same ID; any other error comes with none and has left nothing in the store.
	Claim(ctx context.Context, c Claim) (Lease, Grant, error)
	// Await returns when the lease, which stands in line, holds its name. It does not renew: unless the Grant
	// says Until, the deadline stays where the last renewal put it. [ErrLost] says that it no longer stands
	// there.
	Await(ctx context.Context, l Lease) (Grant, error)
	// Renew asks for the renewal of many leases of this backend in as few messages as it can, and reports
	// for each, as the answers come, by its place in leases and at most once. It returns when all are
	// reported, or with the error that kept the rest from being so. One lease in trouble does not hold up
	// the report of another.
	//
	// It waits for answers until ctx ends, which is when the leases have: however slow the store is, what it
	// answers before that counts. If an answer is overdue, a second call for the same leases comes while the
	// first goes on, and its context is one of [Hedge]; not with [Limits.OneWay]. It takes another endpoint or connection, if there is
	// one. Where the store shows that the first call has renewed a lease, the second may report that, with
	// Until as the first would have. If ctx ends with answers missing, the next Renew takes another way to
	// the store. Renew keeps neither slice nor function after it has returned.
	Renew(ctx context.Context, leases []Lease, report func(i int, r Renewal)) error
	// Release gives the name back, or leaves the line. It is idempotent; a lease that has ended is no error.
	// After [ErrUnknownOutcome] it is to be tried again.
	Release(ctx context.Context, l Lease) error
	// Get tells about a name: what the store knows with authority.
	Get(ctx context.Context, name string) (Info, error)
	// List returns up to limit names that begin with prefix and sort after the given one, in order. The held
	// ones are among them, others need not be. One that cannot be read is there with its Err, and keeps no
	// other from being told. Fewer than limit are the last.
	List(ctx context.Context, prefix, after string, limit int) ([]Info, error)
	// Close gives up connections. Leases stay as they are.
	Close(ctx context.Context) error
}

// Info tells about one name.
type Info struct {
	Name   string
	Held   bool
	Holder Holder        // of the holder, if held
	Token  Token         // of the holder, if held; else the last one if the store remembers it
	TTL    time.Duration // granted, if held
	// Remaining is how long the lease lasts if not renewed, as the store counts it at its answer, if held;
	// negative if the store cannot tell.
	Remaining time.Duration
	Waiting   int    // how many stand in line; -1 if the store cannot tell
	Pinned    string // the reason, if pinned
	// Err is why it cannot be read, such as [ErrCorrupt]; only from List, and then only Name says anything.
	Err error
}

// EventKind is what happened to a name.
type EventKind uint8

// What can happen to a name.
const (
	_         EventKind = iota
	Acquired            // it has a new holder
	Vacated             // it has none any more
	Announced           // its holder changed its card
	Resync              // events may have been missed: Info is how it is now
)

// Event is a change of one name. Info is how it is after that.
type Event struct {
	Kind EventKind
	Info Info
	Why  Reason // if Vacated, or if Acquired from somebody; empty if the store cannot tell
}

// Reason is why a tenure ended.
type Reason string

// Why a tenure can end.
const (
	Released    Reason = "released"
	Expired     Reason = "expired"
	Revoked     Reason = "revoked"
	Transferred Reason = "transferred"
	Deleted     Reason = "deleted" // its record was removed behind the back of all that is here
)

// Tenure is one past or present holding of a name.
type Tenure struct {
	Token  Token
	Holder Holder
	// From and To are wall-clock times of the process that decided, to be shown. To is zero while it lasts.
	From, To time.Time
	Why      Reason
	Note     string // the reason that was given with a revoke
}
