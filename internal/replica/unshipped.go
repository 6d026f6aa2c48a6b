package replica

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/masterlease"
)

func (r *Replica) receiving(Received) {}

func (r *Replica) ship(m *raftpb.Message, _ masterlease.Header) {
	r.raft.ReportSnapshot(m.GetTo(), raft.SnapshotFailure)
}

func (r *Replica) shipped(e Shipped) { r.raft.ReportSnapshot(e.To, raft.SnapshotFailure) }

func (r *Replica) installed(Installed) { panic("replica: nothing was to be installed") }

func (r *Replica) install(m *raftpb.Message) { panic("replica: a state can not be installed yet") }
