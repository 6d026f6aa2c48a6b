package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// Writer carries out requests in a batch. It belongs to the writing goroutine
// and ends with Seal, the commit of its batch, and Store.Commit; at most one is in use at a time. What it wrote
// is seen by its own later requests at once and by readers after Commit.
//
// An error other than the sentinels of this package (of Pebble, a
// *CorruptError, ErrMisuse) leaves the batch half written: every later call
// returns it too, and neither batch nor Store may be used further.
type Writer struct {
	s       *Store
	b       *pebble.Batch
	err     error // the first that wasn't a refusal
	raised  bool  // the revision, since Begin
	sealed  bool
	done    bool // committed
	changes Changes

	// The request under way. Its revision is taken at its first change.
	grouped bool     // several operations are one request
	open    bool     // the revision s.revision is its
	sub     uint32   // events of it so far
	events  []Event  // those events
	before  Revision // s.revision at its start; what it may read explicitly

	key, rec []byte // scratch
}

// Begin starts writing to b, an indexed batch of the Store's database. Keys
// and values of requests must not be changed by anyone after they were given
// to the Writer, as Changes and results share them.
func (s *Store) Begin(b *pebble.Batch) *Writer {
	w := &Writer{s: s, b: b, before: s.revision}
	if s.suspended() {
		w.err = fmt.Errorf("%w: a writer begins while the state is being replaced", ErrMisuse)
	}
	return w
}

// Err returns what made the Writer unusable, if something did.
func (w *Writer) Err() error { return w.err }

// Changes returns what was changed since Begin, for Hub.Publish.
func (w *Writer) Changes() Changes { return w.changes }

// Group makes the operations that f calls one request: they share a revision
// and read what the earlier ones of them wrote. As nothing is undone, f must
// have checked that all of them will succeed before the first; it must not
// put a key twice, nor put what it deletes.
func (w *Writer) Group(f func() error) error {
	if w.grouped {
		return w.fail(fmt.Errorf("%w: a group in a group", ErrMisuse))
	}
	w.grouped = true
	err := w.request(func() error {
		err := f()
		switch {
		case w.err != nil:
			return w.err // even if f didn't look
		case err != nil && w.open:
			return fmt.Errorf("%w: a group failed after it had changed something: %v", ErrMisuse, err)
		}
		return err
	})
	w.grouped = false
	w.finish()
	return err
}

// request runs one operation, which is a request unless it is in a group.
func (w *Writer) request(f func() error) error {
	if w.err != nil {
		return w.err
	}
	if w.done || !w.b.Indexed() {
		return w.fail(fmt.Errorf("%w: the writer's batch is committed or not indexed", ErrMisuse))
	}
	if err := f(); err != nil {
		return w.fail(err)
	}
	if !w.grouped {
		w.finish()
	}
	return nil
}

// fail remembers an error unless it is a refusal.
func (w *Writer) fail(err error) error {
	for _, refusal := range refusals {
		if errors.Is(err, refusal) {
			return err
		}
	}
	if w.err == nil {
		w.err = err
	}
	return err
}

var refusals = []error{
	ErrEmptyKey, ErrKeyNotFound, ErrValueProvided, ErrLeaseProvided, ErrLeaseNotFound,
	ErrInvalidSort, ErrTooManyOps, ErrDuplicateKey, ErrCompacted, ErrFutureRevision,
}

// finish ends a request.
func (w *Writer) finish() {
	if w.open {
		w.changes = append(w.changes, Change{Revision: w.s.revision, Events: w.events})
	}
	w.open, w.sub, w.events, w.before = false, 0, nil, w.s.revision
}

// raise gives the request under way its revision.
func (w *Writer) raise() error {
	if w.open {
		return nil
	}
	if w.s.revision++; w.sealed {
		return fmt.Errorf("%w: a change after Seal", ErrMisuse)
	}
	w.open, w.raised = true, true
	return nil
}

// Seal writes down how far the revision has come. It must be called once all
// requests are carried out, before the batch is committed.
func (w *Writer) Seal() error {
	if w.err != nil || w.sealed || !w.raised {
		return w.err
	}
	w.sealed = true
	w.rec = appendRevision(w.rec[:0], w.s.revision)
	return w.fail(w.b.Set(metaRevision, w.rec, nil))
}

// record adds an event to the request under way.
func (w *Writer) record(e Event) error {
	if err := w.setEvent(e.KV.ModRevision, w.sub, e.Type == EventDelete, e.KV.Key); err != nil {
		return err
	}
	w.sub++
	w.events = append(w.events, e)
	return nil
}

func (w *Writer) setEvent(rev Revision, sub uint32, deleted bool, key []byte) error {
	w.key = appendHistoryKey(w.key[:0], rev, sub)
	w.rec = appendEvent(w.rec[:0], deleted, key)
	return w.b.Set(w.key, w.rec, nil)
}

// view returns the key space as this Writer left it. Endings are looked up in
// memory, which is never behind the batch.
func (w *Writer) view(rev Revision) *view {
	return &view{reader: w.b, rev: rev, ends: pendingEnds(w.s.byGeneration)}
}

type pendingEnds map[uint64]*ending

func (p pendingEnds) endedAt(generation uint64) (Revision, error) {
	if e := p[generation]; e != nil {
		return e.revision, nil
	}
	return 0, nil
}

// Range reads as Store.Range does, but sees what was written before in the
// batch. A negative revision is always compacted: what is executed by many
// must not depend on which revision each takes for the current one.
func (w *Writer) Range(req RangeRequest) (RangeResult, error) {
	var res RangeResult
	err := w.request(func() error {
		if err := req.check(); err != nil {
			return err
		}
		rev, err := readableInTxn(req.Revision, w.before, w.s.compact)
		if err != nil {
			return err
		}
		if req.Revision == 0 {
			rev = w.s.revision
		}
		if res, err = w.view(rev).collect(context.Background(), &req); err == nil {
			res.Revision = w.s.revision
		}
		return err
	})
	return res, err
}

// Compact makes revisions below rev unreadable. Trim removes them.
func (w *Writer) Compact(rev Revision) error {
	return w.request(func() error {
		if rev <= w.s.compact {
			return ErrCompacted
		}
		if rev > w.s.revision {
			return ErrFutureRevision
		}
		w.s.compact = rev
		return w.b.Set(metaCompact, appendRevision(nil, rev), nil)
	})
}

// PutRequest sets a key.
type PutRequest struct {
	Key, Value  []byte
	Lease       int64 // 0: none
	PrevKV      bool  // return what was there
	IgnoreValue bool  // keep the value
	IgnoreLease bool  // keep the lease
	// Absent says that the key is known not to be there, nor to be of a lease
	// whose end is not swept: it isn't looked for.
	Absent bool
}

// PutResult is the answer to a PutRequest.
type PutResult struct {
	Revision Revision
	Prev     *KV // nil unless asked for and there
}

func (r *PutRequest) check() error {
	switch {
	case len(r.Key) == 0:
		return ErrEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return ErrValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return ErrLeaseProvided
	}
	return nil
}

// Put sets a key.
func (w *Writer) Put(req PutRequest) (PutResult, error) {
	var res PutResult
	err := w.request(func() (err error) { res, err = w.put(&req); return err })
	return res, err
}

func (w *Writer) put(req *PutRequest) (PutResult, error) {
	if err := req.check(); err != nil {
		return PutResult{}, err
	}
	next := version{version: 1, lease: req.Lease, value: req.Value}
	if err := w.resolveLease(&next); err != nil {
		return PutResult{}, err
	}
	var prev latest
	if !req.Absent {
		var err error
		if prev, err = w.latest(req.Key, req.PrevKV || req.IgnoreValue); err != nil {
			return PutResult{}, err
		}
	}
	if !prev.found && (req.IgnoreValue || req.IgnoreLease) {
		return PutResult{}, ErrKeyNotFound
	}
	// Nothing is refused from here on.
	if err := w.raise(); err != nil {
		return PutResult{}, err
	}
	next.create = w.s.revision
	if prev.found {
		next.create, next.version = prev.kv.CreateRevision, prev.kv.Version+1
		if req.IgnoreValue {
			next.value = prev.kv.Value
		}
		if req.IgnoreLease {
			next.lease, next.generation = prev.kv.Lease, prev.generation
		}
	} else if prev.ended != nil {
		if err := w.bury(prev.ended, req.Key); err != nil {
			return PutResult{}, err
		}
	}
	if err := w.setVersion(req, &next); err != nil {
		return PutResult{}, err
	}
	w.rebind(req.Key, prev.kv.Lease, next.lease)
	res := PutResult{Revision: w.s.revision}
	if req.PrevKV && prev.found {
		res.Prev = &prev.kv
	}
	return res, nil
}

// resolveLease finds the generation of the lease a version is to have.
func (w *Writer) resolveLease(v *version) error {
	if v.lease == 0 {
		return nil
	}
	generation, ok := w.s.leases.Generation(v.lease)
	if !ok {
		return ErrLeaseNotFound
	}
	if generation == 0 || w.s.byGeneration[generation] != nil {
		return fmt.Errorf("%w: lease %x has generation %d, which is none or ended", ErrMisuse, v.lease, generation)
	}
	v.generation = generation
	return nil
}

// latest is the state of a key as the Writer left it.
type latest struct {
	found      bool
	kv         KV     // with value only if that was asked for
	generation uint64 // of kv.Lease
	ended      *ending
}

// latest reads the newest version of the key. If it is of an ended lease
// whose tombstone for it may be missing, ended says which.
func (w *Writer) latest(key []byte, withValue bool) (l latest, err error) {
	if n, ok := w.s.recents.get(key); ok && (n.version.deleted || !withValue) {
		return w.asLatest(key, n), nil
	}
	it, err := w.b.NewIter(spanOf(key, nil).bounds())
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if !it.First() {
		if err = it.Error(); err == nil {
			w.s.recents.wrote(key, 0, version{deleted: true})
		}
		return l, err
	}
	prefix, mod, err := splitVersionKey(it.Key())
	if err != nil {
		return l, err
	}
	v, err := versionAt(it)
	if err != nil {
		return l, err
	}
	w.s.recents.wrote(key, mod, v)
	if v.deleted {
		return l, nil
	}
	if l.ended = w.s.byGeneration[v.generation]; l.ended != nil {
		return l, nil
	}
	l.found, l.generation = true, v.generation
	i := item{prefix: prefix, mod: mod, version: v}
	l.kv, err = i.kv(withValue)
	return l, err
}

// asLatest is what latest finds if the newest version of a key is n.
func (w *Writer) asLatest(key []byte, n newest) (l latest) {
	v := &n.version
	if v.deleted {
		return l
	}
	if l.ended = w.s.byGeneration[v.generation]; l.ended != nil {
		return l
	}
	l.found, l.generation = true, v.generation
	l.kv = KV{Key: key, CreateRevision: v.create, ModRevision: n.mod, Version: v.version, Lease: v.lease}
	return l
}

// setVersion writes a version at the revision of the request under way.
func (w *Writer) setVersion(req *PutRequest, v *version) error {
	key := req.Key
	w.key = appendVersionKey(w.key[:0], key, w.s.revision)
	w.rec = appendVersion(w.rec[:0], v)
	if err := w.b.Set(w.key, w.rec, nil); err != nil {
		return err
	}
	if req.Absent { // who does not look for it puts it only once
		w.s.recents.rewrote(key, w.s.revision, *v)
	} else {
		w.s.recents.wrote(key, w.s.revision, *v)
	}
	return w.record(Event{Type: EventPut, KV: KV{
		Key:            key,
		Value:          v.value,
		CreateRevision: v.create,
		ModRevision:    w.s.revision,
		Version:        v.version,
		Lease:          v.lease,
	}})
}

func (w *Writer) rebind(key []byte, old, lease int64) {
	if old == lease {
		return
	}
	if old != 0 {
		w.s.leases.Detach(old, key)
	}
	if lease != 0 {
		w.s.leases.Attach(lease, key)
	}
}

// DeleteRequest deletes the keys of an interval, which is given as in
// RangeRequest.
type DeleteRequest struct {
	Key, End []byte
	PrevKV   bool // return what was there
}

// DeleteResult is the answer to a DeleteRequest.
type DeleteResult struct {
	Revision Revision
	Deleted  int64
	Prev     []KV // nil unless asked for
}

func (r *DeleteRequest) check() error {
	if len(r.Key) == 0 {
		return ErrEmptyKey
	}
	return nil
}

// DeleteRange deletes the keys of an interval.
func (w *Writer) DeleteRange(req DeleteRequest) (DeleteResult, error) {
	var res DeleteResult
	err := w.request(func() (err error) { res, err = w.deleteRange(&req); return err })
	return res, err
}

func (w *Writer) deleteRange(req *DeleteRequest) (DeleteResult, error) {
	if err := req.check(); err != nil {
		return DeleteResult{}, err
	}
	if len(req.End) == 0 && !req.PrevKV {
		l, err := w.latest(req.Key, false)
		if err != nil || !l.found {
			return DeleteResult{Revision: w.s.revision}, err
		}
		err = w.delete(req.Key, l.kv.Lease)
		return DeleteResult{Revision: w.s.revision, Deleted: 1}, err
	}
	// All keys are found first: an iterator doesn't see what is written to
	// its batch after it was opened, but this need not rest on that.
	var found []KV
	err := w.view(math.MaxInt64).scan(context.Background(), spanOf(req.Key, req.End), func(i *item) error {
		kv, err := i.kv(req.PrevKV)
		found = append(found, kv)
		return err
	})
	if err != nil {
		return DeleteResult{}, err
	}
	for i := range found {
		if err := w.delete(found[i].Key, found[i].Lease); err != nil {
			return DeleteResult{}, err
		}
	}
	res := DeleteResult{Revision: w.s.revision, Deleted: int64(len(found))}
	if req.PrevKV {
		res.Prev = found
	}
	return res, nil
}

func (w *Writer) delete(key []byte, lease int64) error {
	if err := w.raise(); err != nil {
		return err
	}
	if err := w.setTombstone(key, w.s.revision); err != nil {
		return err
	}
	w.rebind(key, lease, 0)
	return w.record(deleteEvent(bytes.Clone(key), w.s.revision))
}

func (w *Writer) setTombstone(key []byte, rev Revision) error {
	w.s.recents.buried(key, rev)
	w.key = appendVersionKey(w.key[:0], key, rev)
	return w.b.Set(w.key, tombstone, nil)
}
