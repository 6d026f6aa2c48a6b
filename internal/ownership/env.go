package ownership

import (
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// View is what a question about names can see besides the registry.
type View struct {
	Leases *lessor.Lessor
	Stored Stored
	Now    clock.Instant
}

// Stored reads what the caller has stored and the registry does not keep in memory. It sees every effect of the
// commands so far.
type Stored interface {
	// Tenure returns the tenure in the name's [Record]: nil if there is no record, or no tenure in it.
	Tenure(name string) (*Tenure, error)
	// Card returns the value of the key by which a lease waits for a name or owns it. A missing key is an error.
	Card(name string, lease lessor.ID) ([]byte, error)
}

// Env is what a command, or a change of keys, works with. Besides the registry and Effects it changes only Leases, and
// of them only pins and revocations.
type Env struct {
	View
	At   lessor.Position // of the command in the log
	Wall int64           // of the log entry, in milliseconds since 1970; 0 if not known
	// Watched is set on a member that publishes changes of names.
	Watched bool
	Effects Effects
}

// Effects are what commands and changes of keys left to the caller. The caller stores all but Changes after each
// command and each [Registry.UpdateOwners], and then calls Done.
type Effects struct {
	Past    []PastTenure // tenures that ended, to be stored
	Records []Record     // names whose record changed, to be stored
	// Leases are those whose record changed. The renewals of those in Decided that wait can be answered.
	Leases, Decided []lessor.ID
	// Forgotten are names of which nothing stays stored. ForgottenToken is to be stored if it is not 0: the highest
	// token of all forgotten names.
	Forgotten      []Forgotten
	ForgottenToken int64
	// Orphans are the leases of claims whose key is gone. The caller ends those that have not ended.
	Orphans []lessor.ID
	// Changes are what watchers receive, in order.
	Changes []Change
}

// A Record is what is stored of a name.
type Record struct {
	Name    string
	Ended   uint64 // how many tenures ended
	Current *Tenure
	Last    int64   // the token of the last tenure that ended
	Pinned  *string // the reason; nil: not pinned
	Revoked *string // the reason; nil: not revoked
	// Freed is the revision at which the name lost its last owner, and FreedOrder the name's place among those of that
	// revision; 0 while it has an owner.
	Freed      int64
	FreedOrder uint32
	Revision   int64 // of the newest change of the owner or its card
}

// A Tenure is one lease's ownership of a name. Times are in milliseconds since 1970, 0 if not known.
type Tenure struct {
	Token    int64
	Lease    lessor.ID
	Holder   []byte // the holder's card
	From, To int64  // To is 0 while it lasts
	Why      Why    // it ended; 0 while it lasts
	Note     string
}

// A PastTenure is the tenure of a name with a number, counted from 0. It replaces the one with Number-MaxPast.
type PastTenure struct {
	Name   string
	Number uint64
	Tenure *Tenure
}

// Forgotten is a name of which the last Past tenures, and a record, are stored.
type Forgotten struct {
	Name string
	Past uint64
}

// These bounds are part of the replicated state: all members need the same.
const (
	// MaxPast is how many ended tenures of one name are stored.
	MaxPast = 16
	// maxFreeNames is of how many names without an owner anything is remembered.
	maxFreeNames = 1 << 14
	// maxCard is how long a card may be that is stored in a tenure. Of a longer one nothing is stored.
	maxCard = 32 << 10
)

// Why says why a tenure, or a wait, ended. The numbers are stored.
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
	State State     // after it; of a WaitEnded only the name
	Lease lessor.ID // whose tenure or wait ended; 0 if none did
	Why   Why       // it ended
	Note  string
}

// Kind says what happened.
type Kind uint8

// The kinds of changes.
const (
	_             Kind = iota
	Acquired           // the name has a new owner
	Vacated            // the name no longer has an owner
	CardChanged        // the owner changed its card
	StatusChanged      // the name was pinned, unpinned, or its owner revoked
	WaitEnded          // a lease no longer waits
)

// State is what is known of a name.
type State struct {
	Name    string
	Held    bool
	Lease   lessor.ID // the owner's
	Token   int64     // the owner's, or the last owner's
	Holder  []byte    // the owner's card, if it was asked for
	TTL     time.Duration
	Left    time.Duration // until the owner's lease ends, unless it is renewed
	Waiting int
	Pinned  *string // the reason; nil: not pinned
	Revoked *string // the reason, while the owner keeps the name as promised; nil: not revoked
	// Revision is that of the newest change of the owner or its card; 0 if not known.
	Revision int64
	// HolderKnown is set if Holder is the owner's card, which may be empty.
	HolderKnown bool
}

// Place is a lease's place in the queue of a name.
type Place struct {
	Token  int64
	Before int // the waiters ahead; 0: it owns the name
}

// maxSpareEffects bounds the memory of effects that is used again.
const maxSpareEffects = 1 << 12

// Done forgets all effects but Changes, which the caller has stored.
func (e *Effects) Done() {
	e.Past, e.Records, e.Forgotten = emptied(e.Past), emptied(e.Records), emptied(e.Forgotten)
	e.Leases, e.Decided, e.Orphans = emptied(e.Leases), emptied(e.Decided), emptied(e.Orphans)
	e.ForgottenToken = 0
}

// emptied returns the memory of a slice, unless it is much.
func emptied[T any](all []T) []T {
	if cap(all) > maxSpareEffects {
		return nil
	}
	clear(all)
	return all[:0]
}

// leaseChanged notes that the record of a lease changed, and the renewals that wait for it can be answered.
func (e *Effects) leaseChanged(id lessor.ID) {
	e.Leases = append(e.Leases, id)
	e.Decided = append(e.Decided, id)
}

// publish notes a change for watchers. Without watchers there is nobody to receive it.
func (e *Env) publish(change Change) {
	if e.Watched {
		change.Index = e.At.Index()
		e.Effects.Changes = append(e.Effects.Changes, change)
	}
}
