package etcdfile

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Imported is what Import found in a file.
type Imported struct {
	Keys, Leases int
	// Unbound is the number of keys whose lease the file does not have. They have no lease now. In etcd they did not end
	// either.
	Unbound int
	// Users and Roles are the numbers of both.
	Users, Roles int
	// Access: authentication is enabled in the file, and access in the new cluster.
	Access bool
	// Checked: the file ends with a checksum, which was right.
	Checked bool
	// Revision is etcd's.
	Revision int64
}

// Import fills an empty database with the keys, leases, users and roles of a file. The keys keep their values, versions and leases, and the
// revisions of their creation and their last change. Their history is not imported. The database is then that of a member,
// for [record.Refound]. Progress may be nil.
//
// Import writes in several batches. After an error the database is of no use.
func Import(ctx context.Context, f *File, db *pebble.DB, progress Progress) (Imported, error) {
	i := importer{ctx: ctx, f: f, db: db, progress: progress}
	if err := guarded(i.run); err != nil {
		return Imported{}, err
	}
	return i.found, nil
}

// importer copies one file. Its batch is written whenever it is large.
type importer struct {
	ctx      context.Context
	f        *File
	db       *pebble.DB
	progress Progress
	batch    *pebble.Batch
	found    Imported
}

func (i *importer) run() error {
	i.found.Checked = i.f.Checked
	leases, err := i.countLeases()
	if err != nil {
		return err
	}
	// The leases look as if they had been granted by the commands of these log entries.
	if err := record.Settle(i.db, entriesFor(leases)); err != nil {
		return err
	}
	i.batch = i.db.NewBatch()
	for _, step := range []func() error{i.policy, i.leases, i.commit, i.sort, i.commit, i.keys, i.unsort, i.commit} {
		if err := step(); err != nil {
			return errors.Join(err, i.batch.Close())
		}
	}
	if i.found.Revision = max(i.found.Revision, i.f.compacted(), 1); i.found.Revision > 1 { // an empty etcd is at 1, as an empty database is
		if err := keyspace.Skip(i.db, i.batch, i.found.Revision); err != nil {
			return errors.Join(err, i.batch.Close())
		}
	}
	return errors.Join(i.batch.Commit(pebble.Sync), i.batch.Close())
}

// grantsPerEntry is the number of grants that have a position in one log entry.
const grantsPerEntry = 1 << 15

// entriesFor returns the index of the log entry of the last of n grants; 1 if there is none.
func entriesFor(n int) uint64 { return 1 + uint64(max(0, n-1)/grantsPerEntry) }

func (i *importer) countLeases() (n int, err error) {
	err = i.f.each(i.ctx, bucketLeases, func(_, _ []byte) error { n++; return nil })
	return n, err
}

// full writes the batch if it is large.
func (i *importer) full() error {
	if i.batch.Len() < batchBytes {
		return nil
	}
	return i.commit()
}

func (i *importer) commit() error {
	err := errors.Join(i.batch.Commit(pebble.NoSync), i.batch.Close())
	i.batch = i.db.NewBatch()
	return err
}

// leases copies the leases. Each has a generation of its own.
func (i *importer) leases() error {
	return i.f.each(i.ctx, bucketLeases, func(k, v []byte) error {
		l, err := parseLease(k, v)
		if err != nil {
			return err
		}
		at := lessor.At(entriesFor(i.found.Leases+1), i.found.Leases%grantsPerEntry)
		i.found.Leases++
		ttl := min(max(1, l.TTL), int64(lessor.MaxTTL/time.Second)) // etcd too raises what is too short
		record.Put(i.batch, record.LeaseKey(lessor.ID(l.ID)), &logpb.Lease{
			Id: l.ID, Generation: uint64(at), Cleared: uint64(at), TtlNs: int64(time.Duration(ttl) * time.Second),
		})
		return i.full()
	})
}

// sort notes in the database, under each key, where the file has its newest value. It forgets keys that were deleted.
func (i *importer) sort() error {
	var (
		last revision
		read int64
	)
	return i.f.each(i.ctx, bucketKeys, func(k, v []byte) error {
		read++
		i.progress.show(Reading, read, 0)
		at, deleted, err := parseRevision(k)
		if err != nil {
			return err
		}
		if last != (revision{}) && !at.after(last) {
			return damaged("revision %d.%d follows %d.%d", at.main, at.sub, last.main, last.sub)
		}
		last = at
		i.found.Revision = max(i.found.Revision, at.main)
		kv, err := parseKV(k, v)
		if err != nil {
			return err
		}
		if len(kv.Key) == 0 { // etcd's tools raise the revision with such a record
			return nil
		}
		sorted := append([]byte{familySorted}, kv.Key...)
		if deleted {
			err = i.batch.Delete(sorted, nil)
		} else {
			err = i.batch.Set(sorted, k, nil)
		}
		return errors.Join(err, i.full())
	})
}

// keys copies the newest values, in order of keys.
func (i *importer) keys() (err error) {
	it, err := i.db.NewIter(record.Family(familySorted))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	bucket := i.f.tx.Bucket(bucketKeys)
	for valid := it.First(); valid; valid = it.Next() {
		if i.ctx.Err() != nil {
			return context.Cause(i.ctx)
		}
		at, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := i.key(at, bucket.Get(at), it.Key()[1:]); err != nil {
			return err
		}
	}
	return it.Error()
}

// key copies the value of one key.
func (i *importer) key(at, text, key []byte) error {
	kv, err := parseKV(at, text)
	if err != nil {
		return err
	}
	if place, _, err := parseRevision(at); err != nil || !bytes.Equal(kv.Key, key) || kv.ModRevision != place.main || kv.CreateRevision < 1 || kv.CreateRevision > kv.ModRevision || kv.Version < 1 {
		return damaged("the change at %x makes no sense", at)
	}
	generation, err := i.generation(kv.Lease)
	if err != nil {
		return err
	}
	if kv.Lease != 0 && generation == 0 {
		kv.Lease = 0
		i.found.Unbound++
	}
	i.found.Keys++
	i.progress.show(Writing, int64(i.found.Keys), 0)
	err = keyspace.Load(i.batch, keyspace.KV{
		Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
	}, generation)
	return errors.Join(err, i.full())
}

// generation returns the generation of a lease, or 0 if there is no such lease.
func (i *importer) generation(id int64) (uint64, error) {
	if id == 0 {
		return 0, nil
	}
	m := new(logpb.Lease)
	_, err := record.Load(i.db, record.LeaseKey(lessor.ID(id)), m)
	return m.Generation, err
}

// unsort removes what sort has written.
func (i *importer) unsort() error {
	return i.batch.DeleteRange([]byte{familySorted}, []byte{familySorted + 1}, nil)
}
