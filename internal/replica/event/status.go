package event

import (
	"time"

	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Role is the role of a member in its cluster.
type Role uint8

// The roles of a member.
const (
	RoleFollower Role = iota
	RoleCandidate
	RoleLeader
)

func (r Role) String() string { return [...]string{"follower", "candidate", "leader"}[r] }

// ClusterStatus is the status of a member and, if it leads, what it knows of the others.
type ClusterStatus struct {
	Self, Leader uint64 // Leader is 0 if none is known
	Role         Role
	Term         uint64
	Applied      uint64
	Committed    uint64
	Last         uint64 // entry on stable storage

	Lease      time.Duration // how long this member's authority still holds; only a leader has one
	Promise    time.Duration // how long this member's promise to its leader still holds
	HoldOff    time.Duration // how long this member still does not vote because it has just started
	Unreliable string        // why the clocks are not trusted; "" if they are
	Holder     masterlease.HolderStats
	Grantor    masterlease.GrantorStats
	Counts     Counts
	Malformed  uint64 // messages
	Overrun    uint64 // messages that were dropped because they came too fast

	Versions gate.State

	Members []MemberStatus // in order of ids
}

// MemberStatus is the status of one member as this one sees it. Only a leader knows more than the id.
type MemberStatus struct {
	ID uint64
	// Learner is set if it has no vote.
	Learner bool
	Active  bool   // it was heard from within the last election timeout
	Match   uint64 // the last entry that it is known to have
	Lag     uint64 // how many entries of this log it is not known to have
	State   string // probe, replicate or snapshot
	Rate    masterlease.Rate
	// Suspect is set if its clocks are outside the bound.
	Suspect bool
}

// Counts are totals since the replica was opened.
type Counts struct {
	Granted, Renewed, Revoked, Expired, Applied, Skipped uint64
	// Campaigns are those of this member. RejectedPeers are messages of senders that are no members, or whose data
	// directory is not the one that the member had. Malformed are messages that raft would have misunderstood.
	Campaigns, RejectedPeers, Malformed uint64
	// Yields are the hand-overs that this member decided because another one was better off.
	Yields uint64
}
