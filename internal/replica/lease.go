package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/leasekeeper/leasekeeper/masterlease"
)

// leaseHeader returns the part of the master lease that travels with a message of raft. ok is false if the message
// must not be sent.
func (r *Replica) leaseHeader(m *raftpb.Message) (h masterlease.Header, ok bool) {
	switch m.GetType() {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if r.holder.Silent(r.now) {
			return h, false // so that the others elect a leader with a working disk
		}
		if m.GetType() == raftpb.MsgApp && r.holder.Comfortable(r.now) {
			return h, true // heartbeats ask for promises; so a dead leader's last append delays no election
		}
		if request, ok := r.holder.Request(r.now); ok && request.Term == m.GetTerm() {
			h.Request = &request
		}
	case raftpb.MsgAppResp, raftpb.MsgHeartbeatResp:
		if grant, ok := r.grantor.Grant(m.GetTo(), m.GetTerm(), r.now); ok {
			h.Grant = &grant
		}
	case raftpb.MsgTimeoutNow:
		if release, ok := r.holder.Released(); ok {
			h.Release = &release
		}
	case raftpb.MsgVote, raftpb.MsgPreVote:
		h.Release = r.carried
	}
	return h, true
}

// watchProgress reports the progress of the log to the master lease: a leader whose log does not advance gives up.
func (r *Replica) watchProgress() {
	if !r.leading || r.soleVoter() {
		return
	}
	r.holder.Progress(masterlease.Progress{
		Last: r.log.Written(), Synced: r.log.Last(), Committed: r.raft.BasicStatus().HardState.GetCommit(), CatchingUp: r.ships(),
	}, r.now)
}

// ships reports whether another active member is being sent the whole state.
func (r *Replica) ships() (yes bool) {
	r.raft.WithProgress(func(_ uint64, _ raft.ProgressType, p tracker.Progress) {
		yes = yes || p.State == tracker.StateSnapshot && p.RecentActive
	})
	return yes
}
