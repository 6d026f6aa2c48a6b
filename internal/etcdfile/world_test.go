package etcdfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// change is a change of a key, as the model and the file have it. A delete has only its revision and the key.
type change struct {
	rev     int64
	deleted bool
	kv      keyspace.KV
}

func (c change) String() string {
	if c.deleted {
		return fmt.Sprintf("%d delete %q", c.rev, c.kv.Key)
	}
	return fmt.Sprintf("%d put %q=%q c%d v%d lease %x", c.rev, c.kv.Key, c.kv.Value, c.kv.CreateRevision, c.kv.Version, c.kv.Lease)
}

// world is a member's database, and a model of what is in it.
type world struct {
	db    *pebble.DB
	store *keyspace.Store

	generation uint64
	leases     map[int64]*attached
	changes    []change // all that ever happened
	compacted  int64    // -1: never
}

// attached is a lease and its keys.
type attached struct {
	generation uint64
	ttl        time.Duration
	keys       map[string]bool
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// silent is a database's log that nobody reads.
type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}

func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func memoryDB() *pebble.DB {
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), Logger: silent{}})
	must(err)
	return db
}

func newWorld() *world {
	w := &world{db: memoryDB(), leases: make(map[int64]*attached), compacted: -1}
	var err error
	w.store, err = keyspace.Open(w.db, w)
	must(err)
	batch := w.db.NewBatch()
	record.Put(batch, record.KeyApplied, &logpb.Applied{Index: 77, Term: 5})
	must(batch.Commit(pebble.NoSync))
	return w
}

// Generation, Attach and Detach are those of keyspace.Leases.
func (w *world) Generation(id int64) (uint64, bool) {
	l, ok := w.leases[id]
	if !ok {
		return 0, false
	}
	return l.generation, true
}

func (w *world) Attach(id int64, key []byte) { w.leases[id].keys[string(key)] = true }

func (w *world) Detach(id int64, key []byte) { delete(w.leases[id].keys, string(key)) }

// write runs f with a writer, and commits. It adds the changes to the model.
func (w *world) write(f func(*keyspace.Writer, *pebble.Batch)) {
	writer := w.store.Begin(w.db.NewBatch())
	f(writer, writer.Batch())
	must(writer.Seal())
	must(writer.Batch().Commit(pebble.NoSync))
	w.store.Commit(writer)
	for _, c := range writer.Changes() {
		for _, e := range c.Events {
			w.changes = append(w.changes, change{c.Revision, e.Type == keyspace.EventDelete, e.KV})
		}
		for _, key := range c.Ended {
			w.changes = append(w.changes, change{c.Revision, true, keyspace.KV{Key: []byte(key), ModRevision: c.Revision}})
		}
	}
}

func (w *world) grant(id int64, ttl time.Duration) {
	w.generation++
	w.leases[id] = &attached{w.generation, ttl, make(map[string]bool)}
	w.write(func(_ *keyspace.Writer, b *pebble.Batch) {
		record.Put(b, record.LeaseKey(lessor.ID(id)), &logpb.Lease{Id: id, Generation: w.generation, TtlNs: int64(ttl), Cleared: w.generation})
	})
}

func (w *world) end(id int64) {
	l := w.leases[id]
	delete(w.leases, id)
	w.write(func(writer *keyspace.Writer, b *pebble.Batch) {
		record.Remove(b, record.LeaseKey(lessor.ID(id)))
		writer.EndLease(id, l.generation, slices.Sorted(maps.Keys(l.keys)))
		must(writer.Err())
	})
}

func (w *world) put(key, value string, lease int64) {
	w.write(func(writer *keyspace.Writer, _ *pebble.Batch) {
		_, err := writer.Put(keyspace.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease})
		must(err)
	})
}

func (w *world) remove(key, end string) {
	w.write(func(writer *keyspace.Writer, _ *pebble.Batch) {
		_, err := writer.DeleteRange(keyspace.DeleteRequest{Key: []byte(key), End: []byte(end)})
		must(err)
	})
}

func (w *world) revision() int64 { return w.store.Revision() }

func (w *world) compact(rev int64) {
	w.write(func(writer *keyspace.Writer, _ *pebble.Batch) { must(writer.Compact(rev)) })
	w.compacted = rev
}

// state returns the keys at a revision, by key.
func (w *world) state(rev int64) map[string]change {
	all := make(map[string]change)
	for _, c := range w.changes {
		if c.rev > rev {
			break
		}
		if c.deleted {
			delete(all, string(c.kv.Key))
		} else {
			all[string(c.kv.Key)] = c
		}
	}
	return all
}

// retained returns the changes that etcd keeps after the compaction: those that show the state at the compacted revision,
// by revision, and those from it on, in order.
func (w *world) retained() (old map[int64][]string, later []string) {
	old = make(map[int64][]string)
	for _, c := range w.state(w.compacted) {
		if c.rev < w.compacted {
			old[c.rev] = append(old[c.rev], c.String())
		}
	}
	for _, of := range old {
		slices.Sort(of)
	}
	for _, c := range w.changes {
		if c.rev >= w.compacted {
			later = append(later, c.String())
		}
	}
	return old, later
}

// list returns the lines of a map's values in order of keys.
func list(state map[string]change) string {
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(state)) {
		fmt.Fprintln(&text, state[key])
	}
	return text.String()
}
