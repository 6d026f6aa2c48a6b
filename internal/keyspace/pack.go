package keyspace

// pack is a record of events under way.
type pack struct {
	rec []byte   // empty if none is
	rev Revision // of the newest event in it
	sub uint32   // likewise
}

// packBytes is from which size on a record of events is complete: a reader of one of them looks at all.
const packBytes = 4 << 10

// addEvent writes an event that is newer than all there are. It shares a
// record with those before and behind it.
func (w *Writer) addEvent(rev Revision, sub uint32, deleted bool, key []byte) error {
	p := &w.pack
	if len(p.rec) == 0 {
		p.rec, p.rev = append(p.rec, formatEvents), 0
	}
	p.rec = appendPacked(p.rec, rev-p.rev, deleted, key)
	p.rev, p.sub = rev, sub
	if len(p.rec) >= w.s.packBytes {
		return w.setPack()
	}
	return nil
}

// setPack writes the record of events that is under way, under the place of
// the last of them: so a reader finds the record of an event by seeking to the event.
func (w *Writer) setPack() error {
	if len(w.pack.rec) == 0 {
		return nil
	}
	w.key = appendHistoryKey(w.key[:0], w.pack.rev, w.pack.sub)
	err := w.b.Set(w.key, w.pack.rec, nil)
	w.pack.rec = w.pack.rec[:0]
	return err
}

// setEvent writes an event in a record of its own.
func (w *Writer) setEvent(rev Revision, sub uint32, deleted bool, key []byte) error {
	w.key = appendHistoryKey(w.key[:0], rev, sub)
	w.rec = appendEvent(w.rec[:0], deleted, key)
	return w.b.Set(w.key, w.rec, nil)
}

// scratch is memory that one Writer after the other uses.
type scratch struct {
	pack     pack
	key, rec []byte
}

// maxScratch is how much of each kind is kept.
const maxScratch = 4 * packBytes

// again returns the memory that is worth keeping.
func (s scratch) reusable() scratch {
	if max(cap(s.pack.rec), cap(s.key), cap(s.rec)) > maxScratch {
		return scratch{}
	}
	return s
}
