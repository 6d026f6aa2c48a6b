package record

import (
	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
)

// LastProgram returns the id of the program that ran the member last. founded is false for a database without a member,
// which no program ran. The id is empty if the program left no record, as earlier versions do.
func LastProgram(db pebble.Reader) (id string, founded bool, err error) {
	founded, err = Load(db, KeyIdentity, new(logpb.Identity))
	if err != nil || !founded {
		return "", false, err
	}
	last := new(logpb.Program)
	_, err = Load(db, KeyProgram, last)
	return last.Id, true, err
}

// PutProgram writes down which program runs the member from now on, synced. A member that has to wait first calls it after
// the wait.
func PutProgram(db *pebble.DB, id string) error {
	batch := db.NewBatch()
	Put(batch, KeyProgram, &logpb.Program{Id: id})
	return batch.Commit(pebble.Sync)
}
