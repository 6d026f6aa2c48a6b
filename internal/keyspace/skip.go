package keyspace

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// Skip raises the revision of a database by step without changing a key, and compacts all earlier revisions. A reader
// of an earlier revision then learns that its history is gone. No Store of the database may be open. Skip writes to
// b, which the caller commits.
func Skip(db *pebble.DB, b *pebble.Batch, step int64) (was, is Revision, err error) {
	s := &Store{db: db, byGeneration: make(map[uint64]*ending)}
	if err := s.load(); err != nil {
		return 0, 0, err
	}
	was = s.revision
	if step <= 0 || was > math.MaxInt64-step {
		return 0, 0, fmt.Errorf("keyspace: revision %d cannot be raised by %d", was, step)
	}
	is = was + step
	if err := b.Set(metaRevision, appendRevision(nil, is), nil); err != nil {
		return 0, 0, err
	}
	return was, is, b.Set(metaCompact, appendRevision(nil, is), nil)
}
