package keyspace

import (
	"errors"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// Revision counts the changes of the key space. An empty store is at 1.
type Revision = int64

const (
	emptyRevision Revision = 1
	neverCompact  Revision = -1 // the compact revision before the first compaction
)

// KV is a key as it was at some revision.
type KV struct {
	Key, Value     []byte
	CreateRevision int64 // of the put that created it since it was last deleted
	ModRevision    int64 // of its last put
	Version        int64 // puts since it was created, from 1
	Lease          int64 // 0: none
}

// Leases is what the key space asks of the owner of leases. It is called only
// by methods of a Writer, on the Writer's goroutine.
type Leases interface {
	// Generation returns which granting of the lease id is alive; it is above
	// 0 and never the same again for any lease.
	Generation(id int64) (generation uint64, ok bool)
	// Attach and Detach tell which keys a lease has. The key is only valid
	// during the call. Ending a lease does not detach its keys one by one.
	Attach(id int64, key []byte)
	Detach(id int64, key []byte)
}

// Store is the key space in a database. Range, Revision, CompactRevision and
// Bindings may be called from any goroutine, Begin and Commit only from the
// one that writes.
type Store struct {
	db     *pebble.DB
	leases Leases

	// published is what readers go by; replaced by Commit only.
	published atomic.Pointer[published]

	// What watchers read.
	pasts shared[pastKey, past]
	prevs shared[prevKey, *KV]

	// The rest belongs to the writing goroutine.

	revision Revision // ≥ published.revision; of the last change in any batch
	compact  Revision // ≥ published.compact; ≤ revision

	// ends are the ended leases whose tombstones are not all written, oldest
	// first. Readers hold parts of it through published: elements are appended
	// and dropped from the front, never overwritten.
	ends []*ending
	// swept is how many keys of ends[0] are done. 0 ≤ swept < len(ends[0].keys)
	swept int
	// few is fewKeys, and packBytes the constant of that name, but in tests.
	few, packBytes int
	// recents knows the newest versions of some keys.
	recents recents
	// byGeneration has the same endings as ends.
	byGeneration map[uint64]*ending

	answers  answerRoom
	trimming trimming
	epoch    uint64  // that of published
	scratch  scratch // of the last Writer
}

// published is an immutable view of what is committed to the database.
type published struct {
	revision Revision
	compact  Revision
	ends     []*ending // those pending, by revision, all ≤ revision

	// epoch counts how often the whole state was replaced, or began to be. It
	// is odd from Suspend to Reload, when nothing can be read.
	epoch uint64
}

// ending is a lease that ended with keys. Immutable, so readers may share it.
type ending struct {
	generation uint64
	lease      int64
	revision   Revision
	keys       []string // sorted, not empty; keys[i] is deleted by event revision/i
}

// Open reads the state of the key space in db, which may hold keys of other
// families too. leases may be nil if no Writer will be used.
//
// It is quick unless leases had ended that were not yet swept: to find their
// keys again, all versions of all keys are read.
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

// Revision returns the revision of the last change that readers see.
func (s *Store) Revision() int64 { return s.published.Load().revision }

// CompactRevision returns the oldest revision that can be read, -1 before the
// first compaction.
func (s *Store) CompactRevision() int64 { return s.published.Load().compact }

// Pending reports whether ended leases wait to be swept. Only the writing
// goroutine may ask.
func (s *Store) Pending() bool { return len(s.ends) > 0 }

// Commit lets readers see what w wrote. It must be called after w was sealed
// and its batch committed to the database, and before the next Begin.
//
// That order is what openView relies on.
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
