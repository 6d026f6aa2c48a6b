package replica

import (
	"iter"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/event"
)

// The events of [Replica.Step].
type (
	Event         = event.Event
	Tick          = event.Tick
	Request       = event.Request
	BulkRequest   = event.BulkRequest
	Requests      = event.Requests
	Renewal       = event.Renewal
	Read          = event.Read
	Inspection    = event.Inspection
	Persisted     = event.Persisted
	Received      = event.Received
	Unreachable   = event.Unreachable
	Shipped       = event.Shipped
	Installed     = event.Installed
	HandOver      = event.HandOver
	ChangeMembers = event.ChangeMembers
	Leave         = event.Leave
	Found         = event.Found
	Memory        = event.Memory
	Space         = event.Space
)

// The questions of an [Inspection].
type (
	Query        = event.Query
	TimeToLive   = event.TimeToLive
	ListLeases   = event.ListLeases
	NamesQuery   = event.NamesQuery
	MembersQuery = event.MembersQuery
	MarksQuery   = event.MarksQuery
	PlaceQuery   = event.PlaceQuery
)

// The effects of [Replica.Step].
type (
	Effect   = event.Effect
	Persist  = event.Persist
	Reply    = event.Reply
	Replies  = event.Replies
	Renewed  = event.Renewed
	ReadAt   = event.ReadAt
	Send     = event.Send
	Ship     = event.Ship
	Install  = event.Install
	Discard  = event.Discard
	Replaced = event.Replaced
	Publish  = event.Publish
	WakeAt   = event.WakeAt
	Halt     = event.Halt

	Reconfigured = event.Reconfigured
)

// What events and effects consist of.
type (
	Header       = event.Header
	Result       = event.Result
	Members      = event.Members
	Ends         = event.Ends
	LeaseStatus  = event.LeaseStatus
	Granted      = event.Granted
	NameStates   = event.NameStates
	Record       = event.Record
	Message      = event.Message
	RenewedLease = event.RenewedLease
	State        = event.State
)

// forever is [event.Forever].
var forever = event.Forever

// Each is [event.Each].
func Each(effects []Effect) iter.Seq[Effect] { return event.Each(effects) }

// Holds is [event.Holds].
func Holds(effect Effect, now func() clock.Instant) bool { return event.Holds(effect, now) }

// Authorized is [event.Authorized].
func Authorized(answer Effect, now func() clock.Instant) Effect { return event.Authorized(answer, now) }
