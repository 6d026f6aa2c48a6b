package record

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// disableAccess makes access disabled, and keeps it so when the entries that are left in the log are applied. It reports
// whether it changed something.
func disableAccess(db *pebble.DB, batch *pebble.Batch) (changed bool, err error) {
	before, err := LoadPolicy(db)
	if err != nil {
		return false, err
	}
	after, err := before.Apply(access.Disable{})
	if err != nil {
		return false, err
	}
	PutPolicy(batch, before, after)
	voided, err := voidEnabling(db, batch)
	return before.Enabled() || voided, err
}

// voidEnabling replaces each command that would enable access by a checkpoint of no lease, which changes nothing. The other
// commands of the entry keep their positions, by which later entries know the leases that they grant. Other changes of users
// and roles stay: their clients may have been told that they succeeded. None of them can lock an operator out, because the
// operator's changes come after them.
func voidEnabling(db *pebble.DB, batch *pebble.Batch) (voided bool, err error) {
	applied := new(logpb.Applied)
	if _, err := Load(db, KeyApplied, applied); err != nil {
		return false, err
	}
	if applied.Index == 0 {
		return false, nil // refoundLog removes all entries
	}
	var failed error
	err = entriesFrom(db, LogKey(applied.Index+1), func(e *raftpb.Entry) {
		if e.GetType() != raftpb.EntryNormal {
			return // voidMembership replaces it
		}
		m, found := new(logpb.Entry), false
		if err := proto.Unmarshal(e.GetData(), m); err != nil {
			failed = errors.Join(failed, &DamagedError{What: fmt.Sprintf("the commands of log entry %d cannot be read", e.GetIndex()), Err: err})
			return
		}
		for _, c := range m.Commands {
			if _, enables := c.GetAccess().GetChange().(*logpb.AccessChange_Enable_); enables {
				c.Op, c.Caller = &logpb.Command_Checkpoint{Checkpoint: new(logpb.Checkpoint)}, nil
				found = true
			}
		}
		if found {
			data, err := proto.Marshal(m)
			failed = errors.Join(failed, err)
			e.Data = data
			Put(batch, LogKey(e.GetIndex()), e)
			voided = true
		}
	})
	return voided, errors.Join(err, failed)
}
