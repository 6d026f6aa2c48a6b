package keyspace

import (
	"context"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// EachAt calls see with all keys as they are at a revision, in the order of keys. The Store must not change meanwhile, and
// the revision must not be compacted.
func (s *Store) EachAt(ctx context.Context, rev Revision, see func(KV) error) error {
	return s.openView(s.published.Load(), rev).scan(ctx, spanOf([]byte{0}, []byte{0}), func(i *item) error {
		kv, err := i.copyKV(true)
		if err == nil {
			err = see(kv)
		}
		return err
	})
}

// EachEvent calls see with all events from a revision on, in order, which is valid only during the call. The Store must not
// change meanwhile, no ended lease may wait to be swept, and the revision must not be compacted.
func (s *Store) EachEvent(ctx context.Context, from Revision, see func(Event) error) (err error) {
	it, err := s.db.NewIter(familyBounds(FamilyHistory))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	r, h := eventReader{it: it}, historian{reader: s.db}
	valid, err := r.seek(from)
	for ; valid && err == nil; valid, err = r.step() {
		e := deleteEvent(r.current.key, r.current.rev)
		if !r.current.deleted {
			e.Type = EventPut
			e.KV, err = h.put(r.current.key, r.current.rev)
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if err = see(e); err != nil {
			return err
		}
	}
	return err
}

// Load writes a key, as it is in another keyspace, into a batch of a database of which no Store is open. generation is
// that of its lease. Afterwards the caller raises the revision to at least the key's, with Skip.
func Load(b *pebble.Batch, kv KV, generation uint64) error {
	v := version{create: kv.CreateRevision, version: kv.Version, lease: kv.Lease, generation: generation, value: kv.Value}
	return b.Set(appendVersionKey(nil, kv.Key, kv.ModRevision), appendVersion(nil, &v), nil)
}
