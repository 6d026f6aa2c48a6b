package keyspace

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sort"

	"github.com/cockroachdb/pebble/v2"
)

// past is a part of an interval's history.
type past struct {
	events []Event // whole revisions, in order, without PrevKV
	// next is the first revision that was not read: events holds all events of the interval below it. If everything
	// was read, next is above the revision that was current at the beginning.
	next Revision
	cut  bool // the portion allowed no further bytes, although it allowed further events

	compacted Revision // > 0: the start revision is below it, and nothing was read
}

// portion bounds one read of history. The read ends with a whole revision, so it may exceed the bounds by one.
type portion struct {
	events, bytes int
	scanned       int // events scanned, whether in the interval or not
}

// history reads the events of an interval from a revision on, as far as the portion allows. keep reports whether an
// event type is wanted.
func (s *Store) history(ctx context.Context, in span, from Revision, keep func(EventType) bool, size portion) (past, error) {
	p, err := s.toRead()
	if err != nil {
		return past{}, err
	}
	if from > p.revision {
		return past{next: from}, nil
	}
	snapshot := s.db.NewSnapshot()
	h := historian{ctx: ctx, turn: turnOf(ctx), reader: snapshot, in: in, keep: keep, size: size, to: p.revision}
	h.ends = p.ends[sort.Search(len(p.ends), func(i int) bool { return p.ends[i].revision >= from }):]
	err = errors.Join(h.read(from), snapshot.Close())
	if s.replacedSince(p) {
		return past{}, ErrReplaced
	}
	// Check the compact revision only now: from may have been compacted during the read, see openView. Check it
	// before err, which may come from a version that Trim removed.
	if compact := s.CompactRevision(); from < compact {
		return past{compacted: compact}, nil
	}
	if err != nil {
		return past{}, err
	}
	cut := h.bytes >= size.bytes && len(h.events) < size.events && h.next <= p.revision
	return past{events: h.events, next: h.next, cut: cut}, nil
}

// historian reads the history in a snapshot that was opened after a published state was loaded.
//
// By the argument in openView, the 'h' records of a revision at which a lease ended are complete in the snapshot,
// unless the ending was still pending in the published state. For a pending ending the historian skips them and makes
// the deletes from the ending's key list, which gives the same events.
type historian struct {
	ctx    context.Context
	turn   *turnHolder // nil if it reads without turns
	reader pebble.Reader
	in     span
	keep   func(EventType) bool
	size   portion
	to     Revision  // the published revision; later revisions are not read
	ends   []*ending // the ended leases, pending in the published state, whose revisions read has not reached yet

	events  []Event
	next    Revision // all revisions below it are read
	bytes   int
	scanned int
}

func (h *historian) read(from Revision) (err error) {
	h.next = from
	it, err := h.reader.NewIter(&pebble.IterOptions{
		LowerBound: appendHistoryKey(nil, from, 0),
		UpperBound: appendHistoryKey(nil, h.to+1, 0),
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	r := eventReader{it: it}
	valid, err := r.seek(from)
	for err == nil {
		rev := Revision(math.MaxInt64)
		if valid {
			rev = r.current.rev
		}
		if len(h.ends) > 0 && h.ends[0].revision <= rev {
			rev = h.ends[0].revision
		}
		if rev > h.to {
			h.next = h.to + 1
			return nil
		}
		if h.next = rev; h.full() {
			return nil
		}
		if len(h.ends) > 0 && h.ends[0].revision == rev {
			if err = h.ended(h.ends[0]); err != nil {
				return err
			}
			h.ends = h.ends[1:]
			valid, err = r.seek(rev + 1)
		} else {
			valid, err = h.addRevision(&r, rev)
		}
		if err == nil {
			h.next = rev + 1
		}
	}
	return err
}

// eventReader reads the events of the history in order.
type eventReader struct {
	it *pebble.Iterator
	events
}

// seek moves to the first event at or above a revision.
func (r *eventReader) seek(from Revision) (valid bool, err error) {
	r.current.rev = 0
	valid, err = r.record(r.it.SeekGE(appendHistoryKey(nil, from, 0)))
	for valid && r.current.rev < from {
		valid, err = r.step()
	}
	return valid, err
}

// step moves to the next event.
func (r *eventReader) step() (valid bool, err error) {
	if len(r.rest) == 0 {
		return r.record(r.it.Next())
	}
	err = r.next()
	return err == nil, err
}

// record moves to the first event of the record at the iterator, if there is one.
func (r *eventReader) record(valid bool) (bool, error) {
	if !valid {
		return false, r.it.Error()
	}
	rec, err := r.it.ValueAndErr()
	if err != nil {
		return false, err
	}
	before := r.current.rev
	if r.events, err = decodeEvents(r.it.Key(), rec); err == nil && r.current.rev < before {
		err = corrupt(r.key, "it has an event of revision %d, and one of %d comes before it", r.current.rev, before)
	}
	return err == nil, err
}

func (h *historian) full() bool {
	return len(h.events) >= h.size.events || h.bytes >= h.size.bytes || h.scanned >= h.size.scanned
}

// ended adds the delete events of an ending.
func (h *historian) ended(e *ending) error {
	h.scanned++
	if !h.keep(EventDelete) {
		return nil
	}
	for _, key := range keysWithin(e.keys, h.in) {
		h.add(deleteEvent([]byte(key), e.revision))
		if err := h.spend(turnKey + len(key)); err != nil {
			return err
		}
	}
	return nil
}

// keysWithin returns the sorted keys that lie in a span.
func keysWithin(keys []string, in span) []string {
	first := sort.SearchStrings(keys, string(in.key))
	end := len(keys)
	switch {
	case in.single:
		end = first
		if first < len(keys) && keys[first] == string(in.key) {
			end++
		}
	case !in.unbounded:
		end = max(first, sort.SearchStrings(keys, string(in.end)))
	}
	return keys[first:end]
}

// addRevision adds the events of one revision; the reader is at its first event.
func (h *historian) addRevision(r *eventReader, rev Revision) (valid bool, err error) {
	for valid = true; valid && r.current.rev == rev; valid, err = r.step() {
		if h.scanned++; h.scanned%contextEvery == 0 && h.ctx.Err() != nil {
			return false, context.Cause(h.ctx)
		}
		if err := h.visit(r.current); err != nil {
			return false, err
		}
		if h.scanned%contextEvery == 0 {
			if err := h.spend(contextEvery * turnKey); err != nil {
				return false, err
			}
		}
	}
	return valid, err
}

func (h *historian) visit(e historyEvent) error {
	if !h.in.contains(e.key) {
		return nil
	}
	if e.deleted {
		if h.keep(EventDelete) {
			h.add(deleteEvent(bytes.Clone(e.key), e.rev))
		}
		return h.spend(len(e.key))
	}
	if !h.keep(EventPut) {
		return nil
	}
	kv, err := h.put(e.key, e.rev)
	if err != nil {
		return err
	}
	h.add(Event{Type: EventPut, KV: kv})
	return h.spend(turnGet + len(kv.Key) + len(kv.Value))
}

// spend counts bytes that were read.
func (h *historian) spend(bytes int) error { return h.turn.spend(h.ctx, bytes) }

// put reads the version that a put wrote.
func (h *historian) put(key []byte, rev Revision) (KV, error) {
	k := appendVersionKey(nil, key, rev)
	rec, closer, err := h.reader.Get(k)
	if errors.Is(err, pebble.ErrNotFound) {
		return KV{}, corrupt(k, "missing, but there is an event of it")
	}
	if err != nil {
		return KV{}, err
	}
	v, err := decodeVersion(k, rec)
	if err == nil && v.deleted {
		err = corrupt(k, "a tombstone, but its event is a put")
	}
	if err != nil {
		return KV{}, errors.Join(err, closer.Close())
	}
	i := item{prefix: k[:len(k)-revisionLen], mod: rev, version: v}
	kv, err := i.copyKV(true)
	return kv, errors.Join(err, closer.Close())
}

func (h *historian) add(e Event) {
	h.events = append(h.events, e)
	h.bytes += e.size()
}

// eventOverhead is roughly the memory of an event besides its key and value.
const eventOverhead = 128

func (e *Event) size() int { return len(e.KV.Key) + len(e.KV.Value) + eventOverhead }
