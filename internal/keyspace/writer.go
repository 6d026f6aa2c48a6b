package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"
)

// Writer executes requests in a batch. It belongs to the writing goroutine. It ends with Seal, the commit of its
// batch, and Store.Commit; at most one Writer is in use at a time. Its own later requests see its changes at once,
// readers after Commit.
//
// The sentinel errors of this package refuse one request. Any other error (of Pebble, a *CorruptError, ErrMisuse)
// leaves the batch half written: every later call returns it too, and the batch and the Store must not be used
// further.
type Writer struct {
	s       *Store
	b       *pebble.Batch
	err     error // the first error that was no refusal
	raised  bool  // the revision was raised since Begin
	sealed  bool
	done    bool // Store.Commit was called
	changes Changes
	room    writerRoom // memory of the current request's answer

	// The fields below belong to the current request. It takes its revision with its first change.
	grouped bool     // Group combines several operations into one request
	open    bool     // the request has taken the revision s.revision
	sub     uint32   // number of its events so far
	events  []Event  // those events
	before  Revision // s.revision at its start; it may read this revision explicitly

	scratch
}

// Begin starts writing to b, a batch of the Store's database. b needs no index: an index costs as much as the
// writing, and many requests read nothing; see Batch. Nothing may change the keys and values of requests after they
// were passed to the Writer, because Changes and results share their memory.
func (s *Store) Begin(b *pebble.Batch) *Writer {
	w := &Writer{s: s, b: b, before: s.revision, scratch: s.scratch}
	s.scratch = scratch{} // its memory is lost if this Writer never commits
	if s.suspended() {
		w.err = fmt.Errorf("%w: a writer begins while the state is being replaced", ErrMisuse)
	}
	return w
}

// Batch returns the batch to commit. It is the b of Begin. If b has no index, the first read replaces it by an
// indexed batch with the same contents.
func (w *Writer) Batch() *pebble.Batch { return w.b }

// Indexed returns the batch with an index, for reading its contents.
func (w *Writer) Indexed() (*pebble.Batch, error) {
	if w.b.Indexed() {
		return w.b, nil
	}
	indexed := w.s.db.NewIndexedBatch()
	if err := indexed.Apply(w.b, nil); err != nil {
		return nil, w.fail(errors.Join(err, indexed.Close()))
	}
	former := w.b
	w.b = indexed
	return indexed, w.fail(former.Close())
}

// Err returns the error that made the Writer unusable, or nil.
func (w *Writer) Err() error { return w.err }

// Changes returns the changes since Begin, for Hub.Publish.
func (w *Writer) Changes() Changes { return w.changes }

// Group makes the operations that f calls one request: they share a revision, and later ones see the changes of
// earlier ones. Nothing can be undone, so f must check that all operations will succeed before it calls the first. f
// must not put a key twice, nor put a key that it deletes.
func (w *Writer) Group(f func() error) error {
	if w.grouped {
		return w.fail(fmt.Errorf("%w: a group in a group", ErrMisuse))
	}
	w.grouped = true
	err := w.request(func() error {
		err := f()
		switch {
		case w.err != nil:
			return w.err // even if f ignored it
		case err != nil && w.open:
			return fmt.Errorf("%w: a group failed after it had changed something: %v", ErrMisuse, err)
		}
		return err
	})
	w.grouped = false
	w.finish()
	return err
}

// request runs one operation. Outside of Group the operation is a request of its own.
func (w *Writer) request(f func() error) error {
	if w.err != nil {
		return w.err
	}
	if w.done {
		return w.fail(fmt.Errorf("%w: the writer's batch is committed", ErrMisuse))
	}
	if err := f(); err != nil {
		return w.fail(err)
	}
	if !w.grouped {
		w.finish()
	}
	return nil
}

// fail stores an error that is no refusal, and returns it.
func (w *Writer) fail(err error) error {
	if err == nil {
		return nil
	}
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

// finish ends the current request.
func (w *Writer) finish() {
	if w.open {
		w.changes = append(w.changes, Change{Revision: w.s.revision, Events: slices.Clip(w.events)})
	}
	w.open, w.sub, w.before = false, 0, w.s.revision
	w.events = w.events[len(w.events):] // the next request appends after them
}

// raise takes a revision for the current request.
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

// Seal writes the current revision. The caller must call it after all requests, before it commits the batch.
func (w *Writer) Seal() error {
	if w.err != nil || w.sealed || !w.raised {
		return w.err
	}
	w.sealed = true
	if err := w.setPack(); err != nil {
		return w.fail(err)
	}
	w.rec = appendRevision(w.rec[:0], w.s.revision)
	return w.fail(w.b.Set(metaRevision, w.rec, nil))
}

// eventChunk is the capacity for events that is allocated at once when several requests share a batch.
const eventChunk = 8

// record adds an event to the current request.
func (w *Writer) record(e Event) error {
	if err := w.addEvent(e.KV.ModRevision, w.sub, e.Type == EventDelete, e.KV.Key); err != nil {
		return err
	}
	w.sub++
	if cap(w.events) == 0 && len(w.changes) > 0 {
		w.events = make([]Event, 0, eventChunk)
	}
	w.events = append(w.events, e)
	return nil
}

// view returns the keyspace as this Writer left it. It looks up endings in memory, which is never behind the batch.
func (w *Writer) view(rev Revision) (*view, error) {
	b, err := w.Indexed()
	return &view{reader: b, rev: rev, ends: pendingEnds(w.s.byGeneration)}, err
}

type pendingEnds map[uint64]*ending

func (p pendingEnds) endedAt(generation uint64) (Revision, error) {
	if e := p[generation]; e != nil {
		return e.revision, nil
	}
	return 0, nil
}

// Range reads like Store.Range, but also sees earlier changes in the batch. A negative revision counts as compacted:
// every member must compute the same result, whatever revision it takes for the current one.
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
		v, err := w.view(rev)
		if err != nil {
			return err
		}
		dropped, err := w.readInRoom(func(ctx context.Context) (err error) {
			res, err = v.collect(ctx, &req)
			return err
		})
		if dropped {
			res = RangeResult{}
		}
		if err == nil {
			res.Revision = w.s.revision
		}
		return err
	})
	return res, err
}

// Compact makes revisions below rev unreadable. Trim later removes their data.
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
	PrevKV      bool  // return the previous KV
	IgnoreValue bool  // keep the value
	IgnoreLease bool  // keep the lease
	// Absent means that the key is known not to exist, and not to belong to an unswept ended lease. The Writer then
	// does not look it up.
	Absent bool
}

// PutResult is the answer to a PutRequest.
type PutResult struct {
	Revision Revision
	Prev     *KV // nil unless the request asked for it and the key existed
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
	err := w.request(func() (err error) { res, err = w.applyPut(&req); return err })
	return res, err
}

func (w *Writer) applyPut(req *PutRequest) (PutResult, error) {
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
	// From here on the request cannot be refused.
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
		if err := w.sweepEarly(prev.ended, req.Key); err != nil {
			return PutResult{}, err
		}
	}
	if err := w.setVersion(req, &next); err != nil {
		return PutResult{}, err
	}
	w.rebind(req.Key, prev.kv.Lease, next.lease)
	res := PutResult{Revision: w.s.revision}
	if req.PrevKV && prev.found {
		kv := prev.kv // a copy, so that prev itself stays off the heap
		res.Prev = &kv
	}
	return res, nil
}

// resolveLease sets the generation of a version's lease.
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

// setVersion writes a version at the current request's revision.
func (w *Writer) setVersion(req *PutRequest, v *version) error {
	key := req.Key
	w.key = appendVersionKey(w.key[:0], key, w.s.revision)
	w.rec = appendVersion(w.rec[:0], v)
	if err := w.b.Set(w.key, w.rec, nil); err != nil {
		return err
	}
	if req.Absent { // such a key is usually put only once
		w.s.recents.update(key, w.s.revision, *v)
	} else {
		w.s.recents.set(key, w.s.revision, *v)
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

// DeleteRequest deletes the keys of an interval, given as in RangeRequest.
type DeleteRequest struct {
	Key, End []byte
	PrevKV   bool // return the previous KVs
}

// DeleteResult is the answer to a DeleteRequest.
type DeleteResult struct {
	Revision Revision
	Deleted  int64
	Prev     []KV // nil unless the request asked for it

	Dropped bool  // as in TxnResult; unset inside a transaction
	Held    *Held // as in TxnResult; nil inside a transaction
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
	w.beginAnswer()
	err := w.request(func() (err error) { res, err = w.applyDelete(&req); return err })
	res.Held, res.Dropped = w.room.hold(), w.room.dropped
	return res, err
}

func (w *Writer) applyDelete(req *DeleteRequest) (DeleteResult, error) {
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
	// Find all keys before deleting the first. An iterator does not see later writes to its batch, but this code need
	// not rely on it.
	var found []KV
	v, err := w.view(math.MaxInt64)
	if err != nil {
		return DeleteResult{}, err
	}
	prev := req.PrevKV
	err = v.scan(context.Background(), spanOf(req.Key, req.End), func(i *item) error {
		kv, err := i.copyKV(prev)
		if err != nil {
			return err
		}
		if prev && w.room.Take(kv.size()) != nil {
			// Drop the values that were read before: half an answer is useless.
			for j := range found {
				found[j].Value = nil
			}
			kv.Value, prev, w.room.dropped = nil, false, true
		}
		found = append(found, kv)
		return nil
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
	if prev {
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
	w.s.recents.setDeleted(key, rev)
	w.key = appendVersionKey(w.key[:0], key, rev)
	return w.b.Set(w.key, tombstone, nil)
}
