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

// An Event is something that happened to the member: a [Tick], a [Request], [Requests], a [BulkRequest], a [Renewal], a
// [Read], an [Inspection], a [Persisted], a [Space] or a [Memory]. In a cluster of several members it can also be a
// [Received], an [Unreachable], a [Shipped], an [Installed], a [HandOver], a [Leave] or a [Found].
type Event interface{ event() }

// Tick lets time pass. The driver sends one at every [TickInterval] and at each [WakeAt].
type Tick struct {
	// Wall is the time of day in milliseconds since 1970, to be shown to people; 0 if not known.
	Wall int64
}

// A Request is a client's command: any [entry.Command] but those that only a lessor decides. It is answered by
// exactly one [Reply] with its ID, when the command was applied or certainly will not be.
type Request struct {
	ID      uint64 // chosen by the driver, unique while it is in flight
	Command entry.Command
}

// A BulkRequest is a [Request] with a bulk command, and the client that sent it. Clients take turns with bulk commands. A
// bulk command in a plain Request counts as one of the client "".
type BulkRequest struct {
	Request
	Client string // the same for all requests of one client
}

// Requests are several [Request] in a row, with consecutive IDs.
type Requests struct {
	First    uint64 // the ID of the first
	Commands []entry.Command
}

// A Renewal renews leases. It is answered by one or more [Renewed], which together name each lease once: an id that
// has to wait does not delay the others.
type Renewal struct {
	ID     uint64
	Leases []lessor.ID
}

// A Read asks when the state may be read so that the reader sees every acknowledged change. It is answered by a
// [ReadAt], or by a [Reply] with an error.
type Read struct{ ID uint64 }

// An Inspection asks about leases or names. It is answered by a [Reply] whose result is authoritative.
type Inspection struct {
	ID    uint64
	Query Query
}

// A Query is what an [Inspection] asks: a [TimeToLive], a [ListLeases], a [NamesQuery], a
// [MarksQuery] or a [PlaceQuery].
type Query interface{ query() }

func (TimeToLive) query() {}
func (ListLeases) query() {}
func (NamesQuery) query() {}
func (MarksQuery) query() {}
func (PlaceQuery) query() {}

// TimeToLive asks how long a lease has left and, if Items is set, what is attached to it.
type TimeToLive struct {
	Lease lessor.ID
	Items bool
}

// ListLeases asks for the ends of all leases. Their order is undefined, and may differ between two runs with the same
// inputs. Sorting a million leases here would delay renewals.
type ListLeases struct{}

// Persisted reports that the write of the [Persist] with this sequence number is on stable storage. An error means
// that the content of the disk is unknown; then the member halts.
type Persisted struct {
	Sequence uint64
	Err      error
}

// Received is a message of another member.
type Received struct {
	Message Message
	// Incarnation is that of the sender's data directory, as the sender said when it connected.
	Incarnation uint64
	// State came with a snapshot (raftpb.MsgSnap), for [Install]; nil with any other message.
	State State
}

// Unreachable reports that messages to a member are being lost.
type Unreachable struct{ Member uint64 }

// Shipped reports how a [Ship] ended. Err is nil if the member has all of the state.
type Shipped struct {
	To  uint64
	Err error
}

// Installed reports that the state of the [Install] with this sequence number has replaced this member's own, on
// stable storage. An error means that the content of the disk is unknown; then the member halts.
type Installed struct {
	Sequence uint64
	Err      error
}

// HandOver asks a leader to hand over to another member; 0 means the one that can take over first. It is answered by
// a [Reply] when another member leads, or when the hand-over has certainly failed and this member continues to lead.
type HandOver struct {
	ID uint64
	To uint64
}

// Leave asks a member to leave in good order, for a clean shutdown: a leader hands over if it can, and gives up its
// authority. It is answered by a [Reply]. After that the member answers nothing with authority, and neither votes nor
// campaigns.
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

// Persist asks to commit the batch, synced, and to report that by a [Persisted] with the same number. The commit may
// happen in the background, but batches must be committed in the order of their numbers.
type Persist struct {
	Sequence uint64
	Batch    *pebble.Batch
}

// Reply answers a [Request], a failed [Read] or an [Inspection].
type Reply struct {
	ID     uint64
	Header Header
	Result Result // of the request's kind; nil with an error, and for a request without a result
	Err    error
	// Authority is the end of the authority on which the answer rests. The driver reads the clock just before it sends, and
	// answers [ErrNoLeader] if the authority has ended ([Authorized]).
	Authority clock.Instant
}

// Replies are answers to requests that were applied together, in this order. They rest on the log, so their authority
// does not end. The driver no longer uses them when it calls Step again.
type Replies []Reply

// Each yields effects one by one, and each reply of [Replies] as one.
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

// ReadAt answers a [Read]: the caller's own goroutine may read the keyspace at Header.Revision.
type ReadAt struct {
	ID        uint64
	Header    Header
	Authority clock.Instant
}

// Send asks to send a message to another member. The message may be lost, delayed, duplicated and reordered.
type Send struct {
	Message Message
	// Authority is the end of the authority on which an answer in the message rests, as in [Reply]. The driver drops the
	// message if that has ended just before it is sent.
	Authority clock.Instant
}

// Ship asks to send a message with a snapshot (raftpb.MsgSnap) together with the whole state. State shows the state
// at the index of that snapshot. The driver closes State, and reports the outcome by a [Shipped].
type Ship struct {
	Message Message
	State   *pebble.Snapshot
}

// Install asks to replace the whole state by the one that came with a snapshot, synced, in one step, and to report
// that by an [Installed] with the same number. Nothing may be written in the meantime. Earlier writes are done or
// void.
type Install struct {
	Sequence uint64
	State    State // of the Received
	// Own are the member's own records. They are written alongside the received state, and replace those in the database.
	Own []Record
}

// Record is a key of the database with its value.
type Record = record.Record

// Message is a message from one member to another.
type Message = message.Message

// RenewedLease is the outcome of a [Renewal] for one lease.
type RenewedLease = message.RenewedLease

// A State is a whole state that came with a snapshot. The driver knows its content.
type State interface {
	// Discard removes the files of the state.
	Discard() error
}

// Publish hands over the changes of one batch, for watchers. The driver no longer uses Names when it calls Step
// again.
type Publish struct {
	Changes keyspace.Changes
	Names   []ownership.Change
}

// WakeAt asks for a [Tick] this long from now. A later WakeAt replaces an earlier one.
type WakeAt struct{ Wait time.Duration }

// Halt reports that the member cannot continue. No effects follow it.
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

// Header names the member that answered, its revision and its term.
type Header struct {
	ClusterID uint64
	MemberID  uint64
	Revision  int64
	Term      uint64
}

// A Result is the content of the answer to a request. The set is closed:
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

// String describes the effect without the bytes of its batch.
func (p Persist) String() string {
	return fmt.Sprintf("persist #%d (%d writes)", p.Sequence, p.Batch.Count())
}
