package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/replica/event"
	"github.com/leasekeeper/leasekeeper/masterlease"
)

// Role, ClusterStatus and MemberStatus are those of package event.
type (
	Role          = event.Role
	ClusterStatus = event.ClusterStatus
	MemberStatus  = event.MemberStatus
)

// The roles of a member.
const RoleFollower, RoleCandidate, RoleLeader = event.RoleFollower, event.RoleCandidate, event.RoleLeader

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
	for _, id := range r.everyone() {
		s.Members = append(s.Members, MemberStatus{ID: id, Active: id == s.Self, Learner: slices.Contains(r.learners, id)})
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
