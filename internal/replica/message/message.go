package message

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/roster"
	"github.com/leasekeeper/leasekeeper/lessor"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// A Message is what one member sends to another. Each part may be missing. Its receiver must not change it.
type Message struct {
	From, To uint64
	// Raft is a message of raft.
	Raft *raftpb.Message
	// Lease is the part of the master lease; a release can come alone.
	Lease masterlease.Header
	// Renewals are those of a follower's clients, on their way to the leader.
	Renewals []ForwardedRenewal
	// Renewed are the leader's answers to those.
	Renewed []ForwardedRenewed
	// Room says whether the sender, a follower, has space for clients' writes.
	Room memberpb.Room
	// HoldOff is for how long the sender still neither votes nor campaigns because it has just started.
	HoldOff time.Duration
	// Level is the greatest version that the sender understands, see package gate. It comes with Raft.
	Level uint32
	// Removed says that the receiver was removed from the cluster.
	Removed bool
	// Standing says how the sender knows the receiver; nil if that does not matter.
	Standing *Standing
}

// ForwardedRenewal is the renewal of a follower's client on its way to the leader.
type ForwardedRenewal struct {
	Number uint64 // of the sender's
	Leases []lessor.ID
	User   string // on whose behalf, as the sender identified it; empty: nobody has authenticated
}

// ForwardedRenewed answers some ids of the [ForwardedRenewal] with this number.
type ForwardedRenewed struct {
	Number   uint64
	Revision int64
	Term     uint64
	Leases   []RenewedLease
}

// A RenewedLease is the outcome of a renewal for one lease: the TTL that it has from now on, or [lessor.ErrNotFound],
// or an error that says to try again.
type RenewedLease struct {
	ID  lessor.ID
	TTL time.Duration
	Err error
}

// Standing is [roster.Standing].
type Standing = roster.Standing

// Reasons for which a leader does not renew a lease, besides that the lease has ended. Package replica uses them for all
// requests.
var (
	// ErrNoLeader says that no member may answer at the moment. Nothing was changed; try again.
	ErrNoLeader = errors.New("no leader: try again in a moment")
	// ErrTooManyRequests says that the queue of requests is full. Nothing was changed; try again later.
	ErrTooManyRequests = errors.New("too many requests wait already: try again later")
	// ErrNotLeader says that another member must be asked. It is always a [*NotLeaderError]. Nothing was changed.
	ErrNotLeader = errors.New("this member is not the leader")
)

// A NotLeaderError names the leader.
type NotLeaderError struct{ Leader uint64 }

func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("%v: ask member %x", ErrNotLeader, e.Leader)
}

// Is reports whether target is [ErrNotLeader].
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// ErrMalformed says that bytes are no message of a member.
var ErrMalformed = errors.New("malformed message of a member")

// AppendTo appends the encoding of the message to b, without From and To: they are those of the connection.
func (m Message) AppendTo(b []byte) []byte {
	wire := &memberpb.Message{Room: m.Room, VoteHoldOffNs: int64(m.HoldOff), Level: m.Level, Removed: m.Removed}
	if m.Raft != nil {
		data, err := proto.Marshal(m.Raft)
		if err != nil {
			panic(fmt.Sprintf("message: cannot encode raft's message %v: %v", m.Raft, err))
		}
		wire.Raft = data
	}
	if !m.Lease.Empty() {
		wire.Lease = m.Lease.AppendTo(nil)
	}
	for _, renewal := range m.Renewals {
		wire.Renewals = append(wire.Renewals, &memberpb.Renewal{
			Number: renewal.Number, Leases: wireIDs(renewal.Leases), User: []byte(renewal.User),
		})
	}
	for _, renewed := range m.Renewed {
		wire.Renewed = append(wire.Renewed, wireRenewed(renewed))
	}
	if s := m.Standing; s != nil {
		wire.Standing = &memberpb.Standing{Known: s.Known, Data: s.Data, Founding: s.Founding, Ask: s.Ask}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, wire)
	if err != nil {
		panic(fmt.Sprintf("message: cannot encode a message of a member: %v", err))
	}
	return b
}

// Parse reads the bytes that AppendTo wrote. from and to are those of the connection; a message of raft that says
// otherwise is malformed. An unreadable header of a master lease counts as none.
func Parse(from, to uint64, b []byte) (Message, error) {
	wire := new(memberpb.Message)
	if err := proto.Unmarshal(b, wire); err != nil {
		return Message{}, fmt.Errorf("%w: %v", ErrMalformed, err)
	}
	m := Message{From: from, To: to, Room: wire.Room, HoldOff: time.Duration(wire.VoteHoldOffNs), Level: wire.Level, Removed: wire.Removed}
	if len(wire.Raft) > 0 {
		m.Raft = new(raftpb.Message)
		if err := proto.Unmarshal(wire.Raft, m.Raft); err != nil {
			return Message{}, fmt.Errorf("%w: %v", ErrMalformed, err)
		}
		if m.Raft.GetFrom() != from || m.Raft.GetTo() != to {
			return Message{}, fmt.Errorf("%w: from %x to %x, and of raft from %x to %x",
				ErrMalformed, from, to, m.Raft.GetFrom(), m.Raft.GetTo())
		}
	}
	if header, err := masterlease.ParseHeader(wire.Lease); err == nil {
		m.Lease = header
	}
	for _, renewal := range wire.Renewals {
		m.Renewals = append(m.Renewals, ForwardedRenewal{Number: renewal.Number, Leases: ownIDs(renewal.Leases), User: string(renewal.User)})
	}
	for _, renewed := range wire.Renewed {
		m.Renewed = append(m.Renewed, ownRenewed(renewed))
	}
	if s := wire.Standing; s != nil {
		m.Standing = &Standing{Known: s.Known, Data: s.Data, Founding: s.Founding, Ask: s.Ask}
	}
	return m, nil
}

func wireIDs(ids []lessor.ID) []int64 {
	list := make([]int64, len(ids))
	for i, id := range ids {
		list[i] = int64(id)
	}
	return list
}

func ownIDs(ids []int64) []lessor.ID {
	list := make([]lessor.ID, len(ids))
	for i, id := range ids {
		list[i] = lessor.ID(id)
	}
	return list
}

// refusals are the reasons for which a lease is not renewed, as a message carries them.
var refusals = map[memberpb.Refusal]error{
	memberpb.Refusal_NOT_FOUND:         lessor.ErrNotFound,
	memberpb.Refusal_REVOKED:           lessor.ErrRenewalRefused,
	memberpb.Refusal_NO_LEADER:         ErrNoLeader,
	memberpb.Refusal_TOO_MANY_REQUESTS: ErrTooManyRequests,
	memberpb.Refusal_PERMISSION_DENIED: access.ErrPermissionDenied,
	memberpb.Refusal_USER_EMPTY:        access.ErrUserEmpty,
}

func wireRenewed(r ForwardedRenewed) *memberpb.Renewed {
	wire := &memberpb.Renewed{Number: r.Number, Revision: r.Revision, Term: r.Term}
	for _, lease := range r.Leases {
		m := &memberpb.Lease{Id: int64(lease.ID), TtlNs: int64(lease.TTL)}
		if lease.Err != nil {
			m.Refusal = memberpb.Refusal_NO_LEADER // the mildest reason, for an error without a number
			for refusal, err := range refusals {   // order: the reasons exclude each other
				if errors.Is(lease.Err, err) {
					m.Refusal = refusal
				}
			}
		}
		var ended *ownership.EndedError
		if errors.As(lease.Err, &ended) {
			m.Why, m.Note = uint32(ended.Why), ended.Note
		}
		wire.Leases = append(wire.Leases, m)
	}
	return wire
}

func ownRenewed(wire *memberpb.Renewed) ForwardedRenewed {
	r := ForwardedRenewed{Number: wire.Number, Revision: wire.Revision, Term: wire.Term}
	for _, m := range wire.Leases {
		lease := RenewedLease{ID: lessor.ID(m.Id), TTL: time.Duration(m.TtlNs)}
		if m.Refusal != memberpb.Refusal_NONE {
			lease.TTL, lease.Err = 0, ErrNoLeader
			if err := refusals[m.Refusal]; err != nil {
				lease.Err = err
			}
			if m.Why != 0 {
				lease.Err = &ownership.EndedError{Kind: lease.Err, Why: ownership.Why(m.Why), Note: m.Note}
			}
		}
		r.Leases = append(r.Leases, lease)
	}
	return r
}
