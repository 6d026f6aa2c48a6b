package replica

import (
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/clock"
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
	ID     uint64
	Active bool   // it was heard from within the last election timeout
	Match  uint64 // the last entry that it is known to have
	Lag    uint64 // how many entries of this log it is not known to have
	State  string // probe, replicate or snapshot
	Rate   masterlease.Rate
	// Suspect is set if its clocks are outside the bound.
	Suspect bool
}

// Cluster returns the status of the cluster as this member sees it.
func (r *Replica) Cluster(now clock.Instant) ClusterStatus {
	s := ClusterStatus{
		Self: r.identity.MemberID, Leader: r.leader, Term: r.term, Applied: r.applied.Index,
		Committed: r.raft.BasicStatus().HardState.GetCommit(), Last: r.log.Last(),
		Holder: r.holder.Stats(now), Grantor: r.grantor.Stats(now), Counts: r.counts, Versions: r.Versions(),
	}
	s.Promise, s.HoldOff = s.Grantor.Promise, s.Grantor.HoldOffLeft
	switch state := r.raftState(); {
	case r.leading:
		s.Role, s.Lease = RoleLeader, s.Holder.Remaining
	case state.Role != masterlease.Follower:
		s.Role = RoleCandidate
	}
	if s.Holder.Fault != masterlease.NoFault {
		s.Unreliable = s.Holder.Fault.String()
	}
	for _, id := range r.voters {
		s.Members = append(s.Members, MemberStatus{ID: id, Active: id == s.Self})
	}
	if r.leading {
		r.raft.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
			for i := range s.Members {
				if m := &s.Members[i]; m.ID == id {
					m.Match, m.Lag, m.State = p.Match, s.Last-min(s.Last, p.Match), p.State.String()
					m.Active = m.Active || p.RecentActive
					m.Rate, m.Suspect = r.holder.Rate(id)
				}
			}
		})
	}
	return s
}
