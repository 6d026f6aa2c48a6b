package keyspace

import (
	"bytes"
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// view is the keyspace at one revision, as one reader sees it. Only one goroutine uses it.
type view struct {
	reader pebble.Reader
	rev    Revision
	ends   endings // nil: no version up to rev belongs to an ended lease
	close  func() error
	// newest, if set, returns the newest version of a single key as of the view, at less cost than reader.
	newest func(key []byte) (latest, error)
}

// endings looks up the revision at which a generation ended. It is 0 if the generation has not ended, or if its
// tombstones are written.
type endings interface {
	endedAt(generation uint64) (Revision, error)
}

// openView opens the keyspace at rev ≤ p.revision. The caller must have loaded p before the call.
//
// If p has no pending ending, no ending needs to be looked up. Proof: let E be an ending at R ≤ rev.
//
//   - Commit publishes after the batch is in the database. So E is pending in every state published from R until one
//
// that follows E's last sweep.
//   - p is such a later state, because R ≤ p.revision and E is not pending in it.
//   - So E's tombstones were in the database before p was published, and hence before this snapshot was opened. Any
//
// version up to rev that carries E's generation is hidden by a tombstone.
//
// An ending at R > rev does not matter at rev, even if the snapshot contains its record.
//
// By the same argument, looking up endings in the snapshot is right otherwise: if E's record is missing there, it was
// removed together with the writing of the last tombstone.
//
// Compaction first publishes its revision and later removes versions. So a snapshot that lacks versions at rev was
// opened after p.compact > rev was published. Callers therefore check the compact revision once more after reading.
func (s *Store) openView(p *published, rev Revision) *view {
	v := &view{rev: rev}
	if len(p.ends) == 0 {
		// One iterator is a snapshot in itself, and the caller opens only one.
		v.reader, v.close = s.db, func() error { return nil }
	} else {
		snapshot := s.db.NewSnapshot()
		v.reader, v.close = snapshot, snapshot.Close
		v.ends = &recordedEndings{reader: snapshot, cache: make(map[uint64]Revision)}
	}
	return v
}

// recordedEndings looks up endings in a snapshot and caches the results.
type recordedEndings struct {
	reader pebble.Reader
	cache  map[uint64]Revision
}

func (r *recordedEndings) endedAt(generation uint64) (Revision, error) {
	if rev, ok := r.cache[generation]; ok {
		return rev, nil
	}
	key := appendEndedKey(nil, generation)
	rec, closer, err := r.reader.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		r.cache[generation] = 0
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	e, err := decodeEnded(key, rec)
	if err = errors.Join(err, closer.Close()); err != nil {
		return 0, err
	}
	r.cache[generation] = e.revision
	return e.revision, nil
}

// live reports whether a key exists at v.rev, given its newest version up to v.rev. It does not exist if that version
// is a tombstone or belongs to a lease that ended by v.rev.
func (v *view) live(rec *version) (bool, error) {
	if rec.deleted || rec.generation == 0 || v.ends == nil {
		return !rec.deleted, nil
	}
	at, err := v.ends.endedAt(rec.generation)
	return at == 0 || at > v.rev, err
}

// item is a live key under an iterator. It is valid until the iterator moves.
type item struct {
	prefix []byte // of the key's database keys
	mod    Revision
	version
}

func (i *item) key() ([]byte, error) { return userKey(i.prefix) }

// copyKV returns the item as a KV that stays valid.
func (i *item) copyKV(withValue bool) (KV, error) {
	key, err := i.key()
	if err != nil {
		return KV{}, err
	}
	kv := KV{
		Key:            bytes.Clone(key),
		CreateRevision: i.create,
		ModRevision:    i.mod,
		Version:        i.version.version,
		Lease:          i.lease,
	}
	if withValue {
		kv.Value = bytes.Clone(i.value)
	}
	return kv, nil
}

// versionAt decodes the version under the iterator.
func versionAt(it *pebble.Iterator) (version, error) {
	rec, err := it.ValueAndErr()
	if err != nil {
		return version{}, err
	}
	return decodeVersion(it.Key(), rec)
}

// contextEvery is the number of keys that a long scan reads between two checks of its context.
const contextEvery = 256

// scan calls visit for each key of the span that is live at v.rev, in the order of keys. visit must not keep the item.
func (v *view) scan(ctx context.Context, in span, visit func(*item) error) (err error) {
	if in.empty() {
		return nil
	}
	it, err := v.reader.NewIter(in.bounds())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	c := cursor{it: it, rev: v.rev}
	turn := turnOf(ctx)
	for n, valid := 0, it.First(); valid; n++ {
		if n%contextEvery == contextEvery-1 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var found bool
		if found, err = c.newest(); err != nil {
			return err
		}
		if err := turn.spend(ctx, turnKey+len(c.prefix)); err != nil {
			return err
		}
		if !found {
			valid = it.Valid()
			continue
		}
		rec, err := versionAt(it)
		if err != nil {
			return err
		}
		if err := turn.spend(ctx, len(rec.value)); err != nil {
			return err
		}
		if ok, err := v.live(&rec); err != nil {
			return err
		} else if ok {
			if err := visit(&item{prefix: c.prefix, mod: c.mod, version: rec}); err != nil {
				return err
			}
		}
		valid = c.nextKey()
	}
	return it.Error()
}

// cursor moves from key to key over an iterator of versions.
type cursor struct {
	it     *pebble.Iterator
	rev    Revision // the cursor skips versions above it
	prefix []byte   // of the current key
	mod    Revision // of the current version
}

// steps is the number of versions that the cursor skips one by one before it seeks. A seek costs about as much as a
// few steps.
const steps = 4

// newest moves from the first version of a key to its newest one up to c.rev. If there is none, it returns false, and
// the iterator is at another key or at the end.
func (c *cursor) newest() (bool, error) {
	prefix, mod, err := splitVersionKey(c.it.Key())
	if err != nil {
		return false, err
	}
	c.prefix, c.mod = append(c.prefix[:0], prefix...), mod
	for i := 0; c.mod > c.rev; i++ {
		var valid bool
		if i < steps {
			valid = c.it.Next()
		} else {
			valid = c.it.SeekGE(appendSeekRevision(c.prefix, c.rev))
		}
		if !valid || !bytes.HasPrefix(c.it.Key(), c.prefix) {
			return false, nil
		}
		if _, c.mod, err = splitVersionKey(c.it.Key()); err != nil {
			return false, err
		}
	}
	return true, nil
}

// nextKey moves past all versions of the current key.
func (c *cursor) nextKey() bool {
	for range steps {
		if !c.it.Next() {
			return false
		}
		if !bytes.HasPrefix(c.it.Key(), c.prefix) {
			return true
		}
	}
	return c.it.SeekGE(pastPrefix(c.prefix))
}
