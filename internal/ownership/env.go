package ownership

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// View is the data besides the registry that queries about names need.
type View struct {
	Leases *lessor.Lessor
	Stored Stored
	Now    clock.Instant
}

// Stored reads data that the caller has stored and the registry does not keep in memory. It must reflect every effect
// of the commands so far.
type Stored interface {
	// Tenure returns the tenure in the name's [Record], or nil if there is no record or no tenure in it.
	Tenure(name string) (*Tenure, error)
	// Card returns the value of the key by which a lease waits for a name or owns it. A missing key is an error.
	Card(name string, lease lessor.ID) ([]byte, error)
	// Past returns an ended tenure of a name, by its number in its [PastTenure]. It is among the last [MaxPast].
	Past(name string, number uint64) (*Tenure, error)
}

// Env is the environment of a command or a change of keys. Besides the registry and Effects, these change only
// Leases, and there only pins, refusals of renewals, and the TTL of a lease that a [Finish] retains.
type Env struct {
	View
	At   lessor.Position // of the command in the log
	Wall int64           // of the log entry, in milliseconds since 1970; 0 if unknown
	// Watched is set on a member that publishes changes of names.
	Watched bool
	Effects Effects
}

// Effects are the results of commands and changes of keys that the caller must handle. The caller stores all except
// Changes after each command and each [Registry.UpdateOwners], and then calls Done.
type Effects struct {
	Past    []PastTenure // ended tenures to store
	Records []Record     // changed records of names to store
	// Leases are the leases whose record changed. For those in Decided, waiting renewals can be answered.
	Leases, Decided []lessor.ID
	// Forgotten are names of which nothing remains stored. ForgottenToken, if not 0, must be stored: it is the
	// highest token of all forgotten names.
	Forgotten      []Forgotten
	ForgottenToken int64
	// Orphans are the leases of claims whose key is gone. The caller ends those that have not ended.
	Orphans []lessor.ID
	// Changes are the changes to publish to watchers, in order.
	Changes []Change
}

// A Record is the stored data of a name.
type Record struct {
	Name    string
	Ended   uint64 // number of ended tenures
	Current *Tenure
	Last    int64   // the token of the last tenure that ended
	Pinned  *string // the reason; nil: not pinned
	Revoked *string // the reason; nil: not revoked
	// Freed is the revision at which the name lost its last owner, and FreedOrder the name's number among those of
	// that revision; 0 while it has an owner.
	Freed      int64
	FreedOrder uint32
	Revision   int64 // of the last change of the owner or its card
}

// A Tenure is one lease's ownership of a name. Times are in milliseconds since 1970; 0 if unknown.
type Tenure struct {
	Token    int64
	Lease    lessor.ID
	Holder   []byte // the holder's card
	From, To int64  // To is 0 during the tenure
	Why      Why    // reason for its end; 0 during the tenure
	Note     string
	Finished bool // a [Finish] ended it, or holds the name on
}

// A PastTenure is an ended tenure of a name. Number counts the name's tenures from 0. It replaces the stored one with
// Number-MaxPast.
type PastTenure struct {
	Name   string
	Number uint64
	Tenure *Tenure
}

// Forgotten is a name to forget, with the number of its stored tenures. Its record must be removed too.
type Forgotten struct {
	Name string
	Past uint64
}

// These bounds are part of the replicated state: all members need the same values.
const (
	// MaxPast is the number of ended tenures of a name that are stored.
	MaxPast = 16
	// maxFreeNames is the number of names without an owner that are remembered.
	maxFreeNames = 1 << 14
	// maxCard is the maximum length of a card in a stored tenure. A longer card is not stored.
	maxCard = 32 << 10
)

// Why is the reason for the end of a tenure or a wait. The numbers are stored.
type Why uint8

// The reasons for which a tenure can end.
const (
	_ Why = iota
	WhyReleased
	WhyExpired
	WhyRevoked
	WhyTransferred
	WhyDeleted // the key was deleted, or overwritten without its lease
)

// A Change is what happened to a name or to one of its waiters.
type Change struct {
	Kind  Kind
	Index uint64    // of the log entry that caused it
	State State     // after the change; only the name if Kind is WaitEnded
	Lease lessor.ID // the lease whose tenure or wait ended; 0 if none ended
	Why   Why       // reason for that end
	Note  string
}

// Kind is the kind of a change.
type Kind uint8

// The kinds of changes.
const (
	_             Kind = iota
	Acquired           // the name has a new owner
	Vacated            // the name no longer has an owner
	CardChanged        // the owner changed its card
	StatusChanged      // the name was pinned, unpinned, or its owner revoked or finished
	WaitEnded          // a lease no longer waits
)

// State is the current state of a name.
type State struct {
	Name    string
	Held    bool
	Lease   lessor.ID // the owner
	Token   int64     // the owner's token, or the last owner's
	Holder  []byte    // the owner's card, if HolderKnown
	TTL     time.Duration
	Left    time.Duration // until the owner's lease ends, unless it is renewed
	Waiting int
	Pinned  *string // the reason; nil: not pinned
	Revoked *string // the reason, while the owner keeps the name as promised; nil: not revoked
	// Finished is set while a [Finish] holds the name on.
	Finished bool
	// Revision is the revision of the last change of the owner or its card; 0 if unknown.
	Revision int64
	// HolderKnown is set if Holder is the owner's card, which may be empty.
	HolderKnown bool
	// Queue are the first waiters, the next owner first. Only [Registry.StateAndQueue] sets it.
	Queue []Queued
}

// Queued is a lease that waits for a name.
type Queued struct {
	Lease    lessor.ID
	Token    int64  // the create revision of its key
	Priority int32  // of a claim; it is [math.MaxInt32] if the claim was preferred
	Claimed  bool   // a Claim made the lease
	Card     []byte // the value of its key. The registry does not know it.
}

// Place is a lease's position in the queue of a name.
type Place struct {
	Token  int64
	Before int // number of waiters ahead; 0: the lease owns the name
	// Creator is the user that made the claim; empty if no claim made it, or nobody had authenticated.
	Creator string
}

// maxSpareEffects bounds the memory of effects that is kept for reuse.
const maxSpareEffects = 1 << 12

// Done clears all effects except Changes, after the caller has stored them.
func (e *Effects) Done() {
	e.Past, e.Records, e.Forgotten = emptied(e.Past), emptied(e.Records), emptied(e.Forgotten)
	e.Leases, e.Decided, e.Orphans = emptied(e.Leases), emptied(e.Decided), emptied(e.Orphans)
	e.ForgottenToken = 0
}

// emptied returns the memory of a slice for reuse, unless it is large.
func emptied[T any](all []T) []T {
	if cap(all) > maxSpareEffects {
		return nil
	}
	clear(all)
	return all[:0]
}

// leaseChanged adds a lease whose record changed and whose waiting renewals can be answered.
func (e *Effects) leaseChanged(id lessor.ID) {
	e.Leases = append(e.Leases, id)
	e.Decided = append(e.Decided, id)
}

// publish adds a change for watchers. Without watchers it does nothing.
func (e *Env) publish(change Change) {
	if e.Watched {
		change.Index = e.At.Index()
		e.Effects.Changes = append(e.Effects.Changes, change)
	}
}
