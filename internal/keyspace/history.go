package keyspace

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sort"

	"github.com/cockroachdb/pebble/v2"
)

// past is a piece of the history of an interval.
type past struct {
	events []Event // without PrevKV; whole revisions, in order
	next   Revision
	// All events of the interval in [from, next) are in events. next is above
	// the revision that was current when the reading began if all was read.

	compacted Revision // > 0: from is below it and nothing was read
}

// portion bounds how much history is read at a time. Whole revisions are
// read, so the last one may go beyond it.
type portion struct {
	events, bytes int
	scanned       int // events looked at, whether they are of the interval or not
}

// history reads the events of an interval from a revision on, as far as the
// portion goes. keep says which types are wanted.
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
	// Asked only now, as what was to be read may have been compacted meanwhile,
	// see openView; and before the error, which may be for want of a version
	// that Trim removed.
	if compact := s.CompactRevision(); from < compact {
		return past{compacted: compact}, nil
	}
	if err != nil {
		return past{}, err
	}
	return past{events: h.events, next: h.next}, nil
}

// historian walks through the history in a snapshot opened after a published
// state was loaded.
//
// The 'h' entries of a revision R at which a lease ended are complete in the
// snapshot unless the ending was still pending in the published state, by the
// argument in openView. If it was, they are passed over, and the deletes are
// made from the key list of the ending, which is the same thing.
type historian struct {
	ctx    context.Context
	turn   *turnHolder // nil if it reads in no turn
	reader pebble.Reader
	in     span
	keep   func(EventType) bool
	size   portion
	to     Revision  // published; later revisions are not looked at
	ends   []*ending // pending in the published state, not yet passed

	events  []Event
	next    Revision // revisions below it are done
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
			h.ended(h.ends[0])
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

// eventReader goes through the events of the history in order.
type eventReader struct {
	it *pebble.Iterator
	events
}

// seek goes to the first event at or above a revision.
func (r *eventReader) seek(from Revision) (valid bool, err error) {
	r.current.rev = 0
	valid, err = r.record(r.it.SeekGE(appendHistoryKey(nil, from, 0)))
	for valid && r.current.rev < from {
		valid, err = r.step()
	}
	return valid, err
}

// step goes to the next event.
func (r *eventReader) step() (valid bool, err error) {
	if len(r.rest) == 0 {
		return r.record(r.it.Next())
	}
	err = r.next()
	return err == nil, err
}

// record goes to the first event of the record that the iterator is at, if
// there is one.
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

// ended adds the deletes of an ending.
func (h *historian) ended(e *ending) {
	h.scanned++
	if !h.keep(EventDelete) {
		return
	}
	for _, key := range keysWithin(e.keys, h.in) {
		h.add(deleteEvent([]byte(key), e.revision))
	}
}

// keysWithin returns the part of sorted keys that lies in a span.
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

// revision adds the events of one revision, whose first the reader is at.
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
		return nil
	}
	if !h.keep(EventPut) {
		return nil
	}
	kv, err := h.put(e.key, e.rev)
	if err != nil {
		return err
	}
	h.add(Event{Type: EventPut, KV: kv})
	return h.spend(turnGet + len(kv.Value))
}

// spend counts what was read, if that is done in turns.
func (h *historian) spend(bytes int) error {
	if h.turn == nil {
		return nil
	}
	return h.turn.spend(h.ctx, bytes)
}

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

// eventOverhead is roughly what an event takes beside its key and value.
const eventOverhead = 128

func (e *Event) size() int { return len(e.KV.Key) + len(e.KV.Value) + eventOverhead }
