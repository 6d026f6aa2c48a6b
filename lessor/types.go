package lessor

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// ID identifies a lease. Clients may choose it. Any value but [NoLease] is legal, negative ones too.
type ID int64

// NoLease is no lease's id. [Lessor.GetLease] returns it for an item that is attached to no lease.
const NoLease ID = 0

// MaxTTL is the longest TTL that can be granted.
const MaxTTL = 9_000_000_000 * time.Second

// Position is a place in the replicated log: the index of an entry, and the ordinal of a command within that
// entry. The positions of commands are unique. They grow in the order in which members apply the commands.
type Position uint64

// ordinalBits is how many low bits of a [Position] hold the ordinal.
const ordinalBits = 16

// At returns the position of the command with the given ordinal in the entry at index. It panics unless the
// ordinal is below 65,536 and the index below 2^48.
func At(index uint64, ordinal int) Position {
	if ordinal < 0 || ordinal >= 1<<ordinalBits || index >= 1<<(64-ordinalBits) {
		panic(fmt.Sprintf("lessor: no position for command %d of entry %d", ordinal, index))
	}
	return Position(index<<ordinalBits | uint64(ordinal))
}

// Index returns the index of the log entry.
func (p Position) Index() uint64 { return uint64(p) >> ordinalBits }

// Ordinal returns the number of the command within its log entry, counted from 0.
func (p Position) Ordinal() int { return int(p & (1<<ordinalBits - 1)) }

// String returns "index" for the first command of an entry, and "index.ordinal" for every other command.
func (p Position) String() string {
	if p.Ordinal() == 0 {
		return fmt.Sprint(p.Index())
	}
	return fmt.Sprintf("%d.%d", p.Index(), p.Ordinal())
}

// Generation distinguishes the grants of one id. It is the position of the grant.
type Generation = Position

// Ref identifies one grant of one id. A command that carries a Ref has no effect on other grants of that id.
type Ref struct {
	ID         ID
	Generation Generation
}

// Item is a key that is attached to a lease and ends with it.
type Item struct{ Key string }

// Expiry is the conditional command to end one lease because its time is over. It takes effect only if all of
// this holds:
//
//   - A member applies it in the term in which it was decided.
//   - The lease still has the generation that the expiry names.
//   - No command after DecidedAt has cleared the lease.
//   - The lease is not pinned.
type Expiry struct {
	Ref
	Term      uint64   // term of the primary that decided it
	DecidedAt Position // the primary had applied the log up to here when it decided
}

// Checkpoint is the conditional command to store how much time a silent lease has left. It takes effect under
// the same conditions as an [Expiry], except that a pinned lease can be checkpointed.
type Checkpoint struct {
	Ref
	Term      uint64
	DecidedAt Position
	Remaining time.Duration // time left when the primary decided; 0 ≤ Remaining ≤ TTL
}

// Cleared is the conditional command to void the checkpoint of a lease because the holder renewed it. It
// takes effect only if a member applies it in the term in which it was decided, and the lease still has the
// generation that it names.
type Cleared struct {
	Ref
	Term uint64
}

// Lease is a copy of what a lessor knows about one lease.
type Lease struct {
	ID         ID
	Generation Generation
	TTL        time.Duration
	Items      int      // number of attached items
	Cleared    Position // position where the lease was granted or last cleared

	// Checkpointed: a successor counts Remaining from the moment it applied the checkpoint. The checkpoint is a
	// Checkpoint command or a leader's first entry. If Checkpointed is false, Remaining is the TTL.
	Checkpointed   bool
	Remaining      time.Duration
	Pinned         bool // the lease does not expire
	RenewalRefused bool // RefuseRenewal or Retain was applied

	// Only the primary knows the following fields. Elsewhere they are zero.
	Deadline clock.Instant // the primary may end the lease once both readings are past
	Clearing bool          // a renewal waits until a clear is applied
	Ending   bool          // an expiry is decided, and neither applied nor dropped
}

// Ref identifies this grant of the id.
func (l Lease) Ref() Ref { return Ref{l.ID, l.Generation} }

// Record is the durable form of one lease on one member. All fields but Applied are the same on every member.
type Record struct {
	ID             ID
	Generation     Generation
	TTL            time.Duration
	Cleared        Position // Generation ≤ Cleared
	Checkpointed   bool     // by a Checkpoint command; a leader's first entry is not part of the record
	Remaining      time.Duration
	Pinned         bool
	RenewalRefused bool
	Applied        clock.Instant // when this member applied the checkpoint, on its own clocks
}

// Leadership is when this member applied a leader's first entry.
type Leadership struct {
	Start   Position      // of the first entry
	Applied clock.Instant // on this member's clocks
}

// TxnDelete is a write transaction of the store that holds the items. Its End commits it.
type TxnDelete interface {
	// DeleteRange deletes the keys from key up to end, without end. A nil end means the one key.
	DeleteRange(key, end []byte) (n, rev int64)
	End()
}

// LeaseEnder is implemented by a [TxnDelete] that can hide all items of a lease with one record. The lessor
// then calls EndLease once instead of DeleteRange for each item. The items are sorted by key. The callee must
// not use the slice after it returns.
type LeaseEnder interface {
	EndLease(ref Ref, items []Item)
}

// RangeDeleter opens a transaction that deletes the items of one ended lease.
type RangeDeleter func() TxnDelete

// Checkpointer proposes checkpoints and clears. At least one of the slices is not empty. Both belong to the
// callee. A Checkpointer returns commands that it cannot propose with [Lessor.CheckpointsDropped] and
// [Lessor.ClearsDropped]; it may call both while it runs.
type Checkpointer func(checkpoints []Checkpoint, cleared []Cleared)

var (
	// ErrNotFound: there is no lease with this id.
	ErrNotFound = errors.New("lessor: lease not found")
	// ErrExists: a lease with this id was granted and has not ended.
	ErrExists = errors.New("lessor: lease already exists")
	// ErrInvalidTTL: a TTL must be greater than zero. The proposer raises a TTL to a minimum.
	ErrInvalidTTL = errors.New("lessor: TTL must be greater than zero")
	// ErrTTLTooLarge: a TTL must not exceed MaxTTL.
	ErrTTLTooLarge = errors.New("lessor: TTL is too large")
	// ErrNotPrimary: only the primary knows deadlines, and this lessor is not the primary.
	ErrNotPrimary = errors.New("lessor: not the primary lessor")
	// ErrClearing: the deadline has moved, but the caller must not acknowledge the renewal before a clear of
	// this lease is applied.
	ErrClearing = errors.New("lessor: renewal waits until the lease's checkpoint is cleared")
	// ErrRenewalRefused: RefuseRenewal or Retain was applied, so the lease is no longer renewed. It ends when the
	// time promised to its holder has passed.
	ErrRenewalRefused = errors.New("lessor: lease is no longer renewed")
	// ErrEnding: an expiry of this lease is on its way. Until it is applied, skipped or dropped, the caller
	// must neither acknowledge the renewal nor report that the lease is gone.
	ErrEnding = errors.New("lessor: lease is about to expire")
)
