package replica

import (
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// An Event is something that happened to the member: a [Tick], a [Request], [Requests], a [Renewal], a [Read], an
// [Inspection], a [Persisted], or a [Space]; in a group of several also a [Received], an [Unreachable], a [Shipped],
// an [Installed], a [HandOver], a [Leave] or a [Found].
type Event interface{ event() }

// Tick lets time be looked at. The driver sends one at every [TickInterval] and at each [WakeAt].
type Tick struct {
	// Wall is the time of day in milliseconds since 1970, for what is shown to people; 0 if not known.
	Wall int64
}

// A Request asks for a change of the replicated state that a client may ask for: every [entry.Command] but those that a
// lessor decides. It is answered by exactly one [Reply] with its ID, when the change was applied or certainly will not be.
type Request struct {
	ID      uint64 // chosen by the driver, unique while it is under way
	Command entry.Command
}

// Requests are several of [Request] in a row, with consecutive IDs.
type Requests struct {
	First    uint64 // the ID of the first
	Commands []entry.Command
}

// A Renewal asks to renew leases. It is answered by one or more [Renewed], which together name each of
// them once: an id that has to wait for something does not hold up the others.
type Renewal struct {
	ID     uint64
	Leases []lessor.ID
}

// A Read asks for the moment when the state may be read so that every acknowledged change is seen. It is
// answered by a [ReadAt], or by a [Reply] with an error.
type Read struct{ ID uint64 }

// An Inspection asks about leases or names. It is answered by a [Reply] whose result is authoritative.
type Inspection struct {
	ID    uint64
	Query Query
}

// A Query is what an [Inspection] asks: a [TimeToLive], a [ListLeases], a [NamesQuery] or a [PlaceQuery].
type Query interface{ query() }

func (TimeToLive) query() {}
func (ListLeases) query() {}
func (NamesQuery) query() {}
func (PlaceQuery) query() {}

// TimeToLive asks how long a lease has left and, if Items is set, what is attached to it.
type TimeToLive struct {
	Lease lessor.ID
	Items bool
}

// ListLeases asks for the ends of all leases, in no particular order: the only answer that two runs of the
// same inputs may give in different ones. Sorting a million here would keep renewals waiting.
type ListLeases struct{}

// Persisted says that the write of the [Persist] with this sequence number is on stable storage. With an
// error it says that nobody knows what is there, and the member halts.
type Persisted struct {
	Sequence uint64
	Err      error
}

// Received is a message of another member.
type Received struct {
	Message Message
	// Incarnation is that of the sender's data folder, as the sender said when it connected.
	Incarnation uint64
	// State is what came with a snapshot (raftpb.MsgSnap), for [Install]; nil with any other message.
	State State
}

// Unreachable says that messages to a member are being lost.
type Unreachable struct{ Member uint64 }

// Shipped says how a [Ship] ended: nil if the member has all of it.
type Shipped struct {
	To  uint64
	Err error
}

// Installed says that the state of the [Install] with this sequence number has replaced the own one, on stable
// storage. With an error it says that nobody knows what is there, and the member halts.
type Installed struct {
	Sequence uint64
	Err      error
}

// HandOver asks a leader to hand over to another member, 0 meaning the one that is furthest. It is answered by a
// [Reply] when another leads, or when it is sure that it has failed and this one goes on.
type HandOver struct {
	ID uint64
	To uint64
}

// Leave asks a member to take its leave in good order, for a clean shutdown: a leader hands over if it can, and
// gives up its authority. It is answered by a [Reply]; after that the member answers nothing authoritative and
// neither votes nor campaigns.
type Leave struct{ ID uint64 }

func (Received) event()    {}
func (Unreachable) event() {}
func (Shipped) event()     {}
func (Installed) event()   {}
func (HandOver) event()    {}
func (Leave) event()       {}

func (Tick) event()       {}
func (Request) event()    {}
func (Requests) event()   {}
func (Renewal) event()    {}
func (Read) event()       {}
func (Inspection) event() {}
func (Persisted) event()  {}

// An Effect is something that the driver must do, in the order in which [Replica.Step] returned it.
type Effect interface{ effect() }

// Persist asks to commit the batch, synced, and to report it by a [Persisted] with the same number. It may
// happen in the background, but batches must be committed in order of their numbers.
type Persist struct {
	Sequence uint64
	Batch    *pebble.Batch
}

// Reply answers a [Request], a failed [Read] or an [Inspection].
type Reply struct {
	ID     uint64
	Header Header
	Result Result // of the request's kind; nil with an error, and for a request whose answer says nothing more
	Err    error
	// Authority is the end of the authority on which the answer rests. The driver looks at the clock once
	// more just before it sends, and answers [ErrNoLeader] if the authority has ended.
	Authority clock.Instant
}

// Replies are answers to requests that were carried out together, in this order. They rest on the log, so their
// authority does not end. The driver is done with them before it calls Step again.
type Replies []Reply

// Each yields effects one by one, and each of [Replies] as one.
func Each(effects []Effect) iter.Seq[Effect] {
	return func(yield func(Effect) bool) {
		for _, effect := range effects {
			replies, many := effect.(Replies)
			if !many && !yield(effect) {
				return
			}
			for _, reply := range replies {
				if !yield(reply) {
					return
				}
			}
		}
	}
}

// Renewed answers some of the ids of a [Renewal].
type Renewed struct {
	ID        uint64
	Header    Header
	Leases    []RenewedLease
	Authority clock.Instant
}

// ReadAt allows a [Read]: the caller's own goroutine may read the keyspace at Header.Revision.
type ReadAt struct {
	ID        uint64
	Header    Header
	Authority clock.Instant
}

// Send asks to send a message to another member. It may be lost, delayed, doubled and reordered with others.
type Send struct {
	Message Message
	// Authority is the end of the authority on which an answer in it rests, as in [Reply]. If it has ended just
	// before the message is sent, the message is dropped.
	Authority clock.Instant
}

// Ship asks to send a message with a snapshot (raftpb.MsgSnap) together with the whole state, which State shows as
// it is at that index. The performer of the effect closes State, and reports by a [Shipped] how it went.
type Ship struct {
	Message Message
	State   *pebble.Snapshot
}

// Install asks to replace the whole state by what came with a snapshot, synced, in one step, and to report it by an
// [Installed] with the same number. Nothing may be written in the meantime. Writes before it are done or void.
type Install struct {
	Sequence uint64
	State    State // of the Received
	// Own are the member's own records: they stand beside the state that was received, and replace those that are there.
	Own []Record
}

// Record is a key of the database with its value.
type Record = record.Record

// Message is a message from one member to another.
type Message = message.Message

// RenewedLease is the outcome of a [Renewal] for one lease.
type RenewedLease = message.RenewedLease

// A State is a whole state that came with a snapshot. The driver knows more of it.
type State interface {
	// Discard removes what the state is kept in.
	Discard() error
}

// Publish hands over what an apply changed, for watchers. The driver is done with Names before it calls Step again.
type Publish struct {
	Changes keyspace.Changes
	Names   []ownership.Change
}

// WakeAt asks for a [Tick] this long from now. A later WakeAt replaces an earlier one.
type WakeAt struct{ Wait time.Duration }

// Halt says that the member cannot go on. There are no effects after it.
type Halt struct{ Err error }

func (Send) effect()    {}
func (Ship) effect()    {}
func (Install) effect() {}
func (Persist) effect() {}
func (Reply) effect()   {}
func (Replies) effect() {}
func (Renewed) effect() {}
func (ReadAt) effect()  {}
func (Publish) effect() {}
func (WakeAt) effect()  {}
func (Halt) effect()    {}

// Header says who answered, and at which revision and term.
type Header struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64
	Term      uint64
}

// A Result is what the answer to a request says. The set is closed:
//
//   - of commands: [keyspace.PutResult], [keyspace.DeleteResult], [keyspace.TxnResult], [Granted], [ownership.Claimed],
//     [ownership.Released], [ownership.Revoked], [ownership.Transferred]
//   - of queries: [LeaseStatus], [Ends], [NameStates], [ownership.Place]
type Result interface{ Result() }

func (Granted) Result()     {}
func (LeaseStatus) Result() {}
func (Ends) Result()        {}
func (NameStates) Result()  {}

// Ends is the answer to a [ListLeases].
type Ends []lessor.End

// LeaseStatus is the answer to a [TimeToLive].
type LeaseStatus struct {
	ID        lessor.ID
	Granted   time.Duration
	Remaining time.Duration // negative if it is overdue and about to end
	Items     []lessor.Item // sorted
}

// Granted is the answer to an [entry.Grant].
type Granted struct {
	ID  lessor.ID
	TTL time.Duration
}

// String shows what the effect is, without the bytes of a batch.
func (p Persist) String() string {
	return fmt.Sprintf("persist #%d (%d writes)", p.Sequence, p.Batch.Count())
}
