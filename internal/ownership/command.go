package ownership

import (
	"errors"
	"time"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// The commands on names. A name is not empty; the caller checks all other rules for valid names.
type (
	// Claim claims a name: it makes a lease, and the key by which that lease waits for the name. The lease's ID,
	// which is above 0, and the TTL are final. A claim that does not wait changes nothing if the name is held. A
	// repeated claim changes nothing and gets the same answer. The answer is a [Claimed].
	Claim struct {
		Lease  lessor.ID
		TTL    time.Duration
		Name   string
		Holder []byte // the holder's card: the value of the key; immutable
		Wait   bool
		// Priority orders waiters: higher ones first. It is final, and a repeated claim keeps the first one's.
		Priority int32
		// Creator is the user that claims the name; empty if nobody has authenticated. The log has it as the command's
		// caller. A repeated claim keeps the first one's.
		Creator string
	}
	// Release ends the lease of a claim. The answer is a [Released].
	Release struct {
		Name  string
		Lease lessor.ID
	}
	// Revoke ends the tenure of a name's owner: at once if Now is set, otherwise when the TTL that the owner was
	// promised has passed. Token is the owner's, or 0 for any owner. The answer is a [Revoked].
	Revoke struct {
		Name  string
		Token int64
		Note  string
		Now   bool
	}
	// Transfer ends the lease of a claim that owns the name if another lease waits for it. The answer is a
	// [Transferred].
	Transfer struct {
		Name  string
		Lease lessor.ID
	}
	// Finish ends the tenure of a claim that owns its name, because its holder has completed its work. If Hold is not 0,
	// the lease lasts for Hold from then on and is no longer renewed. A repeated request for a tenure that a Finish has
	// ended changes nothing. There is no answer.
	Finish struct {
		Name  string
		Lease lessor.ID
		Token int64  // of the tenure, as its holder knows it; 0 if unknown
		Tick  string // the text of the tick to record in the mark of the name; empty: none
		Hold  time.Duration
	}
	// RaiseMark raises the mark of a name if the lease of a claim owns the name. There is no answer.
	RaiseMark struct {
		Name  string
		Lease lessor.ID
		Token int64 // of the tenure, as its holder knows it; 0 if unknown
		Tick  string
	}
	// Prefer moves a waiting claim to before all others of its name. There is no answer.
	Prefer struct {
		Name  string
		Lease lessor.ID
	}
	// Pin keeps a name with its owner: the owner's lease does not expire.
	Pin struct{ Name, Reason string }
	// Unpin ends a pin.
	Unpin struct{ Name string }
)

// Claimed is the answer to a [Claim]. Lease is 0 if the name has another owner and the claim did not wait.
type Claimed struct {
	Lease   lessor.ID
	TTL     time.Duration
	Token   int64
	Before  int // number of waiters ahead; 0 if the lease owns the name
	Holder  []byte
	Current *State // of the name, if another lease owns it; otherwise nil
	// Overtaken is set if other claims have overtaken this one, so that it has a later token than at first.
	Overtaken bool
}

// Revoked is the answer to a [Revoke].
type Revoked struct {
	Token int64
	Left  time.Duration // time until the name is free at the latest; 0 if it is free
}

// Released is the answer to a [Release]. Ended is set if the claim still existed.
type Released struct{ Ended bool }

// Transferred is the answer to a [Transfer]: the token of the next owner.
type Transferred struct{ Token int64 }

// The Command methods mark commands, which a log can carry; the Result methods mark their answers.
func (Claim) Command()      {}
func (Release) Command()    {}
func (Revoke) Command()     {}
func (Transfer) Command()   {}
func (Finish) Command()     {}
func (RaiseMark) Command()  {}
func (Prefer) Command()     {}
func (Pin) Command()        {}
func (Unpin) Command()      {}
func (Claimed) Result()     {}
func (Released) Result()    {}
func (Revoked) Result()     {}
func (Transferred) Result() {}
func (Place) Result()       {}

// The errors of commands on names. A command that fails changes nothing.
var (
	ErrInvalidClaim = errors.New("a claim needs a name, a lease id above 0, and a TTL")
	ErrLeaseTaken   = errors.New("the lease id belongs to another request: choose one at random for each")
	ErrLost         = errors.New("the lease does not hold the name, and never will again")
	ErrNotHeld      = errors.New("nobody holds the name")
	ErrOtherToken   = errors.New("the name is held under another token")
	ErrPinned       = errors.New("the name is pinned to its holder: unpin it first")
	ErrNobodyWaits  = errors.New("nobody waits for the name")
	ErrNotWaiting   = errors.New("the claim does not wait for the name")
	ErrNotOvertaken = errors.New("a client of etcd's lock recipe waits before the claim, and cannot be overtaken")
	ErrLongQueue    = errors.New("too many claims wait for the name")
)
