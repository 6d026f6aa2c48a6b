package event

import (
	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/entry"
	"github.com/leasekeeper/leasekeeper/internal/replica/intake"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// An Event is something that happened to the member: a [Tick], a [Request], [Requests], a [BulkRequest], a [Renewal], a
// [Read], an [Inspection], a [Persisted], a [Space] or a [Memory]. In a cluster of several members it can also be a
// [Received], an [Unreachable], a [Shipped], an [Installed], a [HandOver], a [Leave] or a [Found].
type Event interface{ event() }

// Tick lets time pass. The driver sends one at every TickInterval of package replica and at each [WakeAt].
type Tick struct {
	// Wall is the time of day in milliseconds since 1970, to be shown to people; 0 if not known.
	Wall int64
}

// A Request is a client's command: any [entry.Command] but those that only a lessor decides. It is answered by
// exactly one [Reply] with its ID, when the command was applied or certainly will not be.
type Request struct {
	ID      uint64 // chosen by the driver, unique while it is in flight
	Command entry.Command
	// Caller is the user on whose behalf the command is requested; zero if nobody has authenticated.
	Caller access.Caller
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
	Caller   access.Caller // of all of them
}

// A Renewal renews leases. It is answered by one or more [Renewed], which together name each lease once: an id that
// has to wait does not delay the others.
type Renewal struct {
	ID     uint64
	Leases []lessor.ID
	User   string // on whose behalf; empty if nobody has authenticated
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

func (TimeToLive) query()   {}
func (ListLeases) query()   {}
func (NamesQuery) query()   {}
func (MarksQuery) query()   {}
func (PlaceQuery) query()   {}
func (MembersQuery) query() {}

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

// ChangeMembers asks a leader to change the members of the cluster, one change at a time. It is answered by a [Reply]
// with [Members], when the change was applied or certainly will not be.
type ChangeMembers struct {
	ID     uint64
	Change roster.Change
	// Caller is on whose behalf, for the audit log; zero for a change that a member decided.
	Caller access.Caller
}

func (ChangeMembers) event() {}
func (Received) event()      {}
func (Unreachable) event()   {}
func (Shipped) event()       {}
func (Installed) event()     {}
func (HandOver) event()      {}
func (Leave) event()         {}

func (Tick) event()       {}
func (Request) event()    {}
func (Requests) event()   {}
func (Renewal) event()    {}
func (Read) event()       {}
func (Inspection) event() {}
func (Persisted) event()  {}

// NamesQuery is an [Inspection] of names. Its answer is their states, in the same order. A state has its owner's card
// only if the card is in memory.
type NamesQuery struct {
	Names []string
	// Waiters bounds the waiters in each state. They have no cards.
	Waiters int
}

// MembersQuery is an [Inspection] of the cluster's members. Its answer is [Members].
type MembersQuery struct{}

// MarksQuery is an [Inspection] that asks whether the leader can log an [ownership.Finish] and an [ownership.RaiseMark].
// The error is ErrTooNew of package replica if it cannot. There is no other answer.
type MarksQuery struct{}

// PlaceQuery is an [Inspection] of one waiter. Its answer is an [ownership.Place], or [ownership.ErrLost] if the lease
// does not wait for the name.
type PlaceQuery struct {
	Name  string
	Lease lessor.ID
}

// Found orders a new member to found the cluster without the missing members. It is answered by a [Reply] whose error
// says why that is refused.
type Found struct{ ID uint64 }

func (Found) event() {}

// Memory is an event: whether the process has memory left for more state. A replica that never got one refuses
// nothing. While memory is short, the replica refuses commands whose effects stay in memory: grants, claims, and keys
// attached to leases. Renewals, releases, deletes and the ends of leases continue.
type Memory struct{ Short bool }

func (Memory) event() {}

// Space is an event: a reading of the space that there is. A replica that never got one refuses nothing.
type Space intake.SpaceReading

func (Space) event() {}
