package replica

import (
	"github.com/leasekeeper/leasekeeper/internal/replica/gate"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// Versions returns what the log says of versions, as far as this member has applied it. A cluster's only member
// understands whatever it states.
func (r *Replica) Versions() gate.State {
	s := r.gates.State()
	if r.alone() {
		s.Cluster = gate.Newest
	}
	return s
}

// applyVersions notes what an entry that is being applied states and uses.
func (r *Replica) applyVersions(states, uses gate.Version) {
	if r.gates.Apply(states, uses) {
		record.Put(r.applying.writer.Batch(), record.KeyLevel, r.level())
	}
}

// level returns the record of the versions.
func (r *Replica) level() *logpb.Level {
	s := r.gates.State()
	return &logpb.Level{Level: uint32(s.InUse), Cluster: uint32(s.Cluster)}
}

// recoverVersions reads what the log says of versions.
func (r *Replica) recoverVersions() error {
	m := new(logpb.Level)
	if _, err := record.Load(r.db, record.KeyLevel, m); err != nil {
		return err
	}
	r.gates.Recover(gate.State{Cluster: gate.Version(m.Cluster), InUse: gate.Version(m.Level)})
	return gate.Check(r.gates.State().InUse)
}
