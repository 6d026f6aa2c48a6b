package record

import (
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// Settle makes an empty database that of a member whose state contains the log up to index. The caller adds that state, and
// then calls [Refound], which gives the member its ids.
func Settle(db *pebble.DB, index uint64) error {
	if _, err := Identify(db, NewMember{ClusterID: 1, MemberID: 1, Incarnation: 1}); err != nil {
		return err
	}
	last := &logpb.Applied{Index: index, Term: 1}
	batch := db.NewBatch()
	Put(batch, KeyHardState, &raftpb.HardState{Term: new(last.Term), Vote: new(uint64), Commit: new(last.Index)})
	Put(batch, KeyApplied, last)
	Put(batch, KeyTruncated, last)
	return errors.Join(batch.Commit(pebble.NoSync), batch.Close())
}
