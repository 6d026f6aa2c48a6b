package etcdfile

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// familySorted begins the database keys under which this package sorts. No record of a member begins with it.
const familySorted = 's'

// Export writes the state in a member's database with w. The database must be a private copy: Export writes to it.
func Export(ctx context.Context, db *pebble.DB, w *Writer, members []Member) error {
	if err := record.FlushLogged(db); err != nil {
		return err
	}
	var failed error
	err := record.Leases(db, func(m *logpb.Lease) bool {
		failed = errors.Join(w.putLease(Lease{ID: m.Id, TTL: ceilSeconds(time.Duration(m.TtlNs))}), context.Cause(ctx))
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := exportPolicy(db, w); err != nil {
		return err
	}
	e := exporter{db: db, w: w}
	compact, err := e.keys(ctx)
	if err != nil {
		return errors.Join(err, e.close())
	}
	applied := new(logpb.Applied)
	if _, err := record.Load(db, record.KeyApplied, applied); err != nil {
		return err
	}
	return w.state(state{index: max(1, applied.Index), term: max(1, applied.Term), compacted: compact, members: members})
}

func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// exporter writes the keys. It sorts those from before the compact revision by their revisions, in the database.
type exporter struct {
	db     *pebble.DB
	w      *Writer
	batch  *pebble.Batch // of old keys; nil while there is none
	sorted uint64        // number of old keys
}

// keys writes all that can still be read or watched: the keys as they are at the compact revision, and all changes from it on.
// It returns the compact revision.
func (e *exporter) keys(ctx context.Context) (compact int64, err error) {
	store, err := keyspace.Open(e.db, nil)
	if err == nil {
		err = e.sweep(ctx, store)
	}
	if err != nil {
		return 0, err
	}
	if compact = store.CompactRevision(); compact > 0 {
		err = store.EachAt(ctx, compact, func(kv keyspace.KV) error {
			if kv.ModRevision == compact {
				return nil // it is among the changes
			}
			return e.old(kv)
		})
		if err == nil {
			err = e.writeOld()
		}
	}
	if err == nil {
		err = store.EachEvent(ctx, max(compact, 1), e.event)
	}
	return compact, err
}

// sweptAtOnce is the number of keys that sweep handles in one batch.
const sweptAtOnce = 4096

// sweep writes the deletes of keys of leases that have ended, so that they are among the changes.
func (e *exporter) sweep(ctx context.Context, store *keyspace.Store) error {
	for store.Pending() {
		w := store.Begin(e.db.NewBatch())
		_, err := w.Sweep(sweptAtOnce)
		if err == nil {
			err = w.Batch().Commit(pebble.NoSync)
		}
		store.Commit(w)
		if err = errors.Join(err, w.Batch().Close(), context.Cause(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// old keeps a key from before the compact revision for writeOld.
func (e *exporter) old(kv keyspace.KV) error {
	if e.batch == nil {
		e.batch = e.db.NewBatch()
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(wireKV(kv))
	if err != nil {
		return err
	}
	k := binary.BigEndian.AppendUint64([]byte{familySorted}, uint64(kv.ModRevision))
	k = binary.BigEndian.AppendUint64(k, e.sorted) // the order of keys, among those of one revision
	e.sorted++
	if err := e.batch.Set(k, text, nil); err != nil {
		return err
	}
	if e.batch.Len() < batchBytes {
		return nil
	}
	return e.commit()
}

func (e *exporter) commit() error {
	if e.batch == nil {
		return nil
	}
	err := e.w.room()
	if err == nil {
		err = e.batch.Commit(pebble.NoSync)
	}
	return errors.Join(err, e.close())
}

func (e *exporter) close() error {
	if e.batch == nil {
		return nil
	}
	b := e.batch
	e.batch = nil
	return b.Close()
}

// writeOld writes the old keys.
func (e *exporter) writeOld() (err error) {
	if err := e.commit(); err != nil {
		return err
	}
	it, err := e.db.NewIter(record.Family(familySorted))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		text, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		// bbolt keeps the value until it has written the batch, and the iterator reuses its memory.
		if err := e.w.appendText(int64(binary.BigEndian.Uint64(it.Key()[1:])), false, bytes.Clone(text)); err != nil {
			return err
		}
	}
	return it.Error()
}

// event writes a change.
func (e *exporter) event(event keyspace.Event) error {
	if event.Type == keyspace.EventDelete {
		return e.w.append(event.KV.ModRevision, true, &mvccpb.KeyValue{Key: event.KV.Key})
	}
	return e.w.append(event.KV.ModRevision, false, wireKV(event.KV))
}

func wireKV(kv keyspace.KV) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: kv.Key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease,
	}
}
