package keyspace

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"
)

// HashResult is the result of Hash and HashKeys.
type HashResult struct {
	Hash     uint32
	Revision Revision // that was hashed
	Compact  Revision // the compact revision at that time; -1: none
	Current  Revision
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// HashKeys returns a hash of the revision rev and of all keys as they are at it; 0 means the current revision. The hash
// of a revision never changes, and all members return the same one until the revision is compacted: neither
// compactions up to rev nor later writes matter. It is never 0. Any goroutine may call it. It reads the whole keyspace.
func (s *Store) HashKeys(ctx context.Context, rev Revision) (HashResult, error) {
	p, err := s.toRead()
	if err != nil {
		return HashResult{}, err
	}
	at, err := readable(rev, p.revision, p.compact)
	if err != nil {
		return HashResult{}, err
	}
	v := s.openView(p, at)
	h := hasher{sum: seed(at)}
	err = errors.Join(v.scan(ctx, span{unbounded: true}, func(i *item) error {
		h.write(i.prefix, i.mod, &i.version)
		return nil
	}), v.close())
	switch {
	case s.replacedSince(p):
		err = ErrReplaced
	case at < s.CompactRevision(): // compacted meanwhile, so that the view may lack keys
		err = ErrCompacted
	case h.sum == 0 && err == nil:
		h.sum = 1
	}
	return HashResult{Hash: h.sum, Revision: at, Compact: p.compact, Current: p.revision}, err
}

// seed begins the hash of a revision.
func seed(rev Revision) uint32 {
	return crc32.Update(0, castagnoli, binary.AppendUvarint([]byte("keys"), uint64(rev)))
}

// Hash returns a hash of all versions of all keys that can be read. Members with the same current revision and the same
// compact revision return the same hash, regardless of the progress of Sweep and Trim and of the layout of their
// databases. A compaction changes it. Any goroutine may call it. It reads the whole keyspace.
func (s *Store) Hash(ctx context.Context) (HashResult, error) {
	for {
		p, err := s.toRead()
		if err != nil {
			return HashResult{}, err
		}
		snapshot := s.db.NewSnapshot()
		if s.CompactRevision() != p.compact {
			// The snapshot may lack versions that are readable at p.compact.
			if err := snapshot.Close(); err != nil {
				return HashResult{}, err
			}
			continue
		}
		h := hasher{
			reader: snapshot, rev: p.revision, compact: p.compact, sum: seed(p.revision),
			ends: &recordedEndings{reader: snapshot, cache: make(map[uint64]Revision)},
		}
		err = errors.Join(h.run(ctx), snapshot.Close())
		if s.replacedSince(p) {
			err = ErrReplaced
		}
		return HashResult{Hash: h.sum, Revision: p.revision, Compact: p.compact, Current: p.revision}, err
	}
}

// hasher hashes the versions in a snapshot. By the argument in openView, each ending up to rev has either its record
// or all its tombstones there. No version that can be read from compact on was trimmed from it.
type hasher struct {
	reader       pebble.Reader
	rev, compact Revision
	ends         endings

	sum    uint32
	rec    []byte   // scratch
	prefix []byte   // of the current key
	newer  Revision // of the key's version that was added last
	done   bool     // no older version of the key can be read
}

func (h *hasher) run(ctx context.Context) (err error) {
	it, err := h.reader.NewIter(familyBounds(FamilyVersions))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	turn := turnOf(ctx)
	for n, valid := 0, it.First(); valid; n++ {
		if n%contextEvery == contextEvery-1 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		prefix, mod, err := splitVersionKey(it.Key())
		if err != nil {
			return err
		}
		if !bytes.Equal(prefix, h.prefix) {
			h.prefix, h.newer, h.done = append(h.prefix[:0], prefix...), 0, false
		}
		size := turnKey + len(prefix)
		if mod <= h.rev {
			value, err := h.version(it, mod)
			if err != nil {
				return err
			}
			size += value
		}
		if err := turn.spend(ctx, size); err != nil {
			return err
		}
		if h.done {
			valid = it.SeekGE(pastPrefix(bytes.Clone(h.prefix)))
		} else {
			valid = it.Next()
		}
	}
	return it.Error()
}

// version adds a version up to h.rev, and returns the size of its value. Before it, it adds the tombstone of the version's
// lease if the lease has ended and the tombstone is not written yet.
func (h *hasher) version(it *pebble.Iterator, mod Revision) (size int, err error) {
	v, err := versionAt(it)
	if err != nil {
		return 0, err
	}
	if v.generation != 0 {
		ended, err := h.ends.endedAt(v.generation)
		if err != nil {
			return 0, err
		}
		if ended != 0 && ended <= h.rev && (h.newer == 0 || h.newer > ended) {
			h.add(ended, &version{deleted: true})
		}
	}
	h.add(mod, &v)
	return len(v.value), nil
}

// add adds a version, newest first, unless a newer one up to the compact revision hides it. A tombstone up to the
// compact revision adds nothing.
func (h *hasher) add(mod Revision, v *version) {
	if h.done {
		return
	}
	h.newer, h.done = mod, mod <= h.compact
	if h.done && v.deleted {
		return
	}
	h.write(h.prefix, mod, v)
}

// write adds a version of a key to the sum. prefix is that of the key's database keys.
func (h *hasher) write(prefix []byte, mod Revision, v *version) {
	h.rec = binary.AppendUvarint(h.rec[:0], uint64(len(prefix)))
	h.rec = append(h.rec, prefix...)
	h.rec = binary.AppendUvarint(h.rec, uint64(mod))
	if v.deleted {
		h.rec = append(h.rec, tombstone...)
	} else {
		h.rec = binary.AppendUvarint(h.rec, uint64(len(v.value)))
		named := *v
		named.generation = 0 // no read returns it
		h.rec = appendVersion(h.rec, &named)
	}
	h.sum = crc32.Update(h.sum, castagnoli, h.rec)
}
