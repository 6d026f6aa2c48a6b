package record

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// RevisionStep is how much higher the revision is after a restore than in the snapshot. What was
// acknowledged after the snapshot was made, and is lost, had lower revisions: it would take a year at 30 000
// writes a second to use them up. So no fencing token is given out twice.
const RevisionStep = 1 << 40

// Refound makes the database of a snapshot that of the only member of a new cluster. The two ids must be random. Revisions
// before the first new one are compacted. The log stays: entries that were not applied yet will be, at revisions above
// the restored one. It returns the revision of the snapshot, and the first that can be read from now on.
func Refound(db *pebble.DB, clusterID, memberID uint64) (was, revision int64, err error) {
	identity := new(logpb.Identity)
	found, err := Load(db, KeyIdentity, identity)
	if err != nil {
		return 0, 0, err
	}
	if !found || identity.Format != Format {
		return 0, 0, &DamagedError{What: fmt.Sprintf("the snapshot's data is of format %d, not %d", identity.Format, Format)}
	}
	hard := new(raftpb.HardState)
	if _, err := Load(db, KeyHardState, hard); err != nil {
		return 0, 0, err
	}
	identity.ClusterId, identity.MemberId = clusterID, memberID
	hard.Vote = new(uint64)
	batch := db.NewBatch()
	// The instants in the snapshot can no longer be compared with others, not even on the same machine.
	domain := new(logpb.Domain)
	if _, err := Load(db, KeyDomain, domain); err != nil {
		return 0, 0, err
	}
	domain.Name = ""
	Put(batch, KeyDomain, domain)
	Put(batch, KeyIdentity, identity)
	Put(batch, KeyHardState, hard)
	Put(batch, KeyConfState, &raftpb.ConfState{Voters: []uint64{identity.MemberId}})
	Remove(batch, KeyNew) // no other member is left to wait for
	was, revision, err = keyspace.Skip(db, batch, RevisionStep)
	if err != nil {
		return 0, 0, err
	}
	return was, revision, batch.Commit(pebble.Sync)
}
