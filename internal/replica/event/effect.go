package event

import (
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/message"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// An Effect is something that the driver must do, in the order in which Step returned it.
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
	// answers [message.ErrNoLeader] if the authority has ended ([Authorized]).
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
	// Logins are the tokens that users got.
	Logins []access.Login
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
//     [ownership.Released], [ownership.Revoked], [ownership.Transferred], [access.Changed]
//   - of queries: [LeaseStatus], [Ends], [NameStates], [ownership.Place]
type Result interface{ Result() }

// Members is the list of the cluster's members, in order of ids. Its receiver must not modify it.
type Members []roster.Member

func (Members) Result()     {}
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

// NameStates is the answer to a [NamesQuery]: the states of names after the log entry with that index.
type NameStates struct {
	Names []ownership.State
	Index uint64
}

// Discard says that a state which came with a snapshot is not needed. The driver removes its files.
type Discard struct{ State State }

// Replaced says that a later state has replaced the whole state. The driver notifies watchers before it publishes
// anything else.
type Replaced struct{}

// Reconfigured says that this member has applied a change of the cluster's members, or a state with a list of them. The
// driver connects to these members. It may also answer members that call and are not in the list.
type Reconfigured struct{ Members Members }

func (Discard) effect()      {}
func (Replaced) effect()     {}
func (Reconfigured) effect() {}
