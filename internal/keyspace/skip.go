package keyspace

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// ReadRevision returns the revision of a database of which no Store is open.
func ReadRevision(db *pebble.DB) (Revision, error) {
	s := &Store{db: db, byGeneration: make(map[uint64]*ending)}
	if err := s.load(); err != nil {
		return 0, err
	}
	return s.revision, nil
}

// Skip raises the revision of a database to another one without changing a key, and compacts all earlier revisions. A
// reader of an earlier revision then learns that its history is gone. No Store of the database may be open. Skip writes
// to b, which the caller commits.
func Skip(db *pebble.DB, b *pebble.Batch, to Revision) error {
	was, err := ReadRevision(db)
	if err != nil {
		return err
	}
	if to <= was {
		return fmt.Errorf("keyspace: revision %d cannot be raised to %d", was, to)
	}
	if err := b.Set(metaRevision, appendRevision(nil, to), nil); err != nil {
		return err
	}
	return b.Set(metaCompact, appendRevision(nil, to), nil)
}
