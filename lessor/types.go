package lessor

import (
	"errors"
	"fmt"
	"time"

	"github.com/leasekeeper/leasekeeper/clock"
)

// ID names a lease. Clients may choose it; any value but [NoLease] is legal, negative ones too.
type ID int64

// NoLease is the id of no lease: what [Lessor.GetLease] returns for an item that is attached to none.
const NoLease ID = 0

// MaxTTL is the longest TTL that can be granted.
const MaxTTL = 9_000_000_000 * time.Second

// Position is a place in the replicated log: an entry's index, and the ordinal of a command within that
// entry. Positions of commands are unique and grow with the order in which members apply them.
type Position uint64

const ordinalBits = 16

// At returns the position of the command with the given ordinal in the entry at index. It panics if the
// ordinal is not below 65,536 or the index not below 2^48.
func At(index uint64, ordinal int) Position {
	if ordinal < 0 || ordinal >= 1<<ordinalBits || index >= 1<<(64-ordinalBits) {
		panic(fmt.Sprintf("lessor: no position for command %d of entry %d", ordinal, index))
	}
	return Position(index<<ordinalBits | uint64(ordinal))
}

// Index returns the index of the log entry.
func (p Position) Index() uint64 { return uint64(p) >> ordinalBits }

// Ordinal returns the place of the command within its log entry.
func (p Position) Ordinal() int { return int(p & (1<<ordinalBits - 1)) }

// String returns "index", or "index.ordinal" for any but the first command of an entry.
func (p Position) String() string {
	if p.Ordinal() == 0 {
		return fmt.Sprint(p.Index())
	}
	return fmt.Sprintf("%d.%d", p.Index(), p.Ordinal())
}

// Generation tells one granting of an id from another: it is the position of the grant.
type Generation = Position

// Ref names one granting of one id. A command that carries a Ref misses every other granting.
type Ref struct {
	ID         ID
	Generation Generation
}

// Item is a key that is attached to a lease and ends with it.
type Item struct{ Key string }

// Expiry is the conditional command to end one lease because its time is up. It takes effect only if it is
// applied in the term it was decided in, to the generation it names, and if that lease has not been
// cleared by a command after DecidedAt.
type Expiry struct {
	Ref
	Term      uint64   // of the primary that decided it
	DecidedAt Position // up to where that primary had applied the log when it decided
}

// Checkpoint is the conditional command to remember how much time a silent lease has left. It takes effect
// under the same conditions as an [Expiry].
type Checkpoint struct {
	Ref
	Term      uint64
	DecidedAt Position
	Remaining time.Duration // 0 ≤ Remaining ≤ TTL
}

// Cleared is the conditional command to forget a lease's checkpoint because the holder was heard again. It
// takes effect if it is applied in the term it was decided in, to the generation it names.
type Cleared struct {
	Ref
	Term uint64
}

// Lease is a copy of what a lessor knows about one lease, for others to look at.
type Lease struct {
	ID         ID
	Generation Generation
	TTL        time.Duration
	Items      int      // how many items are attached
	Cleared    Position // where it was granted or last cleared

	// Checkpointed tells that a successor counts Remaining from the moment it applied the checkpoint,
	// which may have been a command of its own or a leader's first entry. Otherwise Remaining is the TTL.
	Checkpointed   bool
	Remaining      time.Duration
	Pinned         bool // it does not expire
	RenewalRefused bool // by RefuseRenewal

	// The rest is the primary's knowledge and zero elsewhere.
	Deadline clock.Instant // may be ended once this is past
	Clearing bool          // a renewal waits until "cleared" is applied
	Ending   bool          // an expiry is on its way
}

// Ref returns the name of this granting.
func (l Lease) Ref() Ref { return Ref{l.ID, l.Generation} }

// Record is the durable form of one lease on one member. All of it but Applied is the same on every member.
type Record struct {
	ID             ID
	Generation     Generation
	TTL            time.Duration
	Cleared        Position // Generation ≤ Cleared
	Checkpointed   bool     // by a command of its own; a leader's first entry leaves no trace in the record
	Remaining      time.Duration
	Pinned         bool
	RenewalRefused bool
	Applied        clock.Instant // when this member applied that checkpoint, on its own clocks
}

// Leadership says when this member applied a leader's first entry, on its own clocks.
type Leadership struct {
	Start   Position
	Applied clock.Instant
}

// TxnDelete is a write transaction of the store that holds the items. Its End commits it.
type TxnDelete interface {
	// DeleteRange deletes the one key if end is nil.
	DeleteRange(key, end []byte) (n, rev int64)
	End()
}

// LeaseEnder is implemented by a [TxnDelete] that can hide all items of a lease with one record. EndLease
// is then called once instead of DeleteRange for each item; items are sorted by key, and void once it returns.
type LeaseEnder interface {
	EndLease(ref Ref, items []Item)
}

// RangeDeleter opens a transaction in which the items of one ended lease are deleted.
type RangeDeleter func() TxnDelete

// Checkpointer proposes checkpoints and clears. At least one of the slices is not empty; they belong to the
// callee. What cannot be proposed is given back with [Lessor.CheckpointsDropped] and
// [Lessor.ClearsDropped], which a Checkpointer may call itself.
type Checkpointer func(checkpoints []Checkpoint, cleared []Cleared)

var (
	// ErrNotFound: there is no lease with this id.
	ErrNotFound = errors.New("lessor: lease not found")
	// ErrExists: a lease with this id has been granted and has not ended.
	ErrExists = errors.New("lessor: lease already exists")
	// ErrInvalidTTL: a TTL must be greater than zero; raising it to a minimum is the proposer's part.
	ErrInvalidTTL = errors.New("lessor: TTL must be greater than zero")
	// ErrTTLTooLarge: a TTL must not exceed MaxTTL.
	ErrTTLTooLarge = errors.New("lessor: TTL is too large")
	// ErrNotPrimary: only the primary knows deadlines, and this lessor is not it.
	ErrNotPrimary = errors.New("lessor: not the primary lessor")
	// ErrClearing: the deadline has moved, but the renewal must not be acknowledged before the "cleared"
	// command for this lease has been applied.
	ErrClearing = errors.New("lessor: renewal waits until the lease's checkpoint is cleared")
	// ErrRenewalRefused: RefuseRenewal was applied to the lease, so it is renewed no more and ends when what was promised has ended.
	ErrRenewalRefused = errors.New("lessor: lease is renewed no more")
	// ErrEnding: an expiry of this lease is on its way. Neither acknowledge the renewal nor say that the
	// lease is gone until that is decided.
	ErrEnding = errors.New("lessor: lease is about to expire")
)
