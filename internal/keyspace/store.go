package keyspace

import (
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Revision counts the changes of the keyspace. An empty store is at revision 1.
type Revision = int64

const (
	emptyRevision Revision = 1
	neverCompact  Revision = -1 // the compact revision before the first compaction
)

// KV is a key and its value at some revision.
type KV struct {
	Key, Value     []byte
	CreateRevision int64 // of the put that created the key since it was last deleted
	ModRevision    int64 // of its last put
	Version        int64 // number of puts since the key was created, from 1
	Lease          int64 // 0: none
}

// Leases is the keyspace's access to the leases. Only methods of a Writer call it, on the Writer's goroutine.
type Leases interface {
	// Generation returns the number of a lease's current granting. It is above 0 and unique among all leases; ok is
	// false if the lease does not exist.
	Generation(id int64) (generation uint64, ok bool)
	// Attach and Detach report that a lease gains or loses a key. The key is only valid during the call. The end of a
	// lease does not detach its keys one by one.
	Attach(id int64, key []byte)
	Detach(id int64, key []byte)
}

// Store is the keyspace in a database. Any goroutine may call Range, Revision, CompactRevision and Bindings. Only the
// writing goroutine may call Begin and Commit.
type Store struct {
	db     *pebble.DB
	leases Leases

	// published is the state that readers use. Only the writing goroutine replaces it.
	published atomic.Pointer[published]

	// pasts and prevs share the reads of watchers.
	pasts shared[pastKey, past]
	prevs shared[prevKey, *KV]

	// Only the writing goroutine uses the fields below.

	revision Revision // of the last change in any batch; ≥ published.revision
	compact  Revision // ≥ published.compact; ≤ revision

	// ends are the ended leases with missing tombstones, oldest first. Readers share the slice through published: the
	// Writer appends and drops elements from the front, and never overwrites one.
	ends []*ending
	// swept is the number of swept keys of ends[0]. 0 ≤ swept < len(ends[0].keys)
	swept int
	// few is fewKeys and packBytes is packBytes; tests set other values.
	few, packBytes int
	// recents caches the newest versions of some keys.
	recents recents
	// byGeneration indexes ends.
	byGeneration map[uint64]*ending

	answers  answerRoom
	trimming trimming
	epoch    uint64  // see published.epoch
	scratch  scratch // memory of the last Writer, for the next one
}

// published is an immutable view of the state committed to the database.
type published struct {
	revision Revision
	compact  Revision
	ends     []*ending // pending endings by revision, all ≤ revision

	// epoch counts the beginnings and ends of replacements of the whole state. It is odd from Suspend to Reload, when
	// nothing can be read.
	epoch uint64
}

// ending is the end of a lease that had keys. It is immutable, so readers may share it.
type ending struct {
	generation uint64
	lease      int64
	revision   Revision
	keys       []string // sorted, not empty; the event with sub i deletes keys[i]
}

// Open loads the keyspace's state from db, which may contain keys of other families. leases may be nil if no Writer
// will be used.
//
// Open is fast unless some ended leases are not swept yet. To find their keys, it then reads all versions of all keys.
func Open(db *pebble.DB, leases Leases) (*Store, error) {
	s := &Store{db: db, leases: leases, few: fewKeys, packBytes: packBytes, byGeneration: make(map[uint64]*ending)}
	if err := s.load(); err != nil {
		return nil, err
	}
	s.publish()
	return s, nil
}

func (s *Store) load() (err error) {
	if s.revision, err = s.loadRevision(metaRevision, emptyRevision); err != nil {
		return err
	}
	if s.compact, err = s.loadRevision(metaCompact, neverCompact); err != nil {
		return err
	}
	if s.revision < emptyRevision || s.compact > s.revision {
		return corrupt(metaRevision, "revision %d, compact revision %d", s.revision, s.compact)
	}
	if s.trimming.done, err = s.loadRevision(metaTrimmed, neverCompact); err != nil {
		return err
	}
	if s.trimming.done > s.compact {
		return corrupt(metaTrimmed, "trimmed to %d, compact revision %d", s.trimming.done, s.compact)
	}
	return s.loadEnds()
}

func (s *Store) loadRevision(key []byte, missing Revision) (Revision, error) {
	rec, closer, err := s.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return missing, nil
	}
	if err != nil {
		return 0, err
	}
	rev, err := decodeRevision(key, rec)
	return rev, errors.Join(err, closer.Close())
}

// Revision returns the last revision that readers can see.
func (s *Store) Revision() int64 { return s.published.Load().revision }

// CompactRevision returns the oldest readable revision, or -1 before the first compaction.
func (s *Store) CompactRevision() int64 { return s.published.Load().compact }

// Pending reports whether ended leases wait to be swept. Only the writing goroutine may call it.
func (s *Store) Pending() bool { return len(s.ends) > 0 }

// Commit makes the changes of w visible to readers. The caller must first seal w and commit its batch to the
// database, and must call Commit before the next Begin. openView relies on this order.
func (s *Store) Commit(w *Writer) {
	if w.raised && !w.sealed {
		panic("keyspace: the writer's batch was committed unsealed")
	}
	w.done = true
	s.scratch = w.scratch.reusable()
	s.publish()
}

func (s *Store) publish() {
	s.published.Store(&published{
		revision: s.revision,
		compact:  s.compact,
		ends:     s.ends[:len(s.ends):len(s.ends)],
		epoch:    s.epoch,
	})
}
