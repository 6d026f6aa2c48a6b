package keyspace

// pack is a record of several events that is being built.
type pack struct {
	rec []byte   // empty if no record is being built
	rev Revision // of its newest event
	sub uint32   // of its newest event
}

// packBytes is the size at which a record of events is complete. A reader of one of its events scans them all.
const packBytes = 4 << 10

// addEvent adds an event, newer than all others, to the record being built.
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

// setPack writes the record being built, under the key of its last event. So a reader finds the record of an event by
// seeking to the event.
func (w *Writer) setPack() error {
	if len(w.pack.rec) == 0 {
		return nil
	}
	w.key = appendHistoryKey(w.key[:0], w.pack.rev, w.pack.sub)
	err := w.b.Set(w.key, w.pack.rec, nil)
	w.pack.rec = w.pack.rec[:0]
	return err
}

// setEvent writes an event as a record of its own.
func (w *Writer) setEvent(rev Revision, sub uint32, deleted bool, key []byte) error {
	w.key = appendHistoryKey(w.key[:0], rev, sub)
	w.rec = appendEvent(w.rec[:0], deleted, key)
	return w.b.Set(w.key, w.rec, nil)
}

// scratch is memory that successive Writers reuse.
type scratch struct {
	pack     pack
	key, rec []byte
}

// maxScratch is the size in bytes up to which each buffer is reused.
const maxScratch = 4 * packBytes

// reusable returns s, or a zero scratch if one of its buffers is too large to keep.
func (s scratch) reusable() scratch {
	if max(cap(s.pack.rec), cap(s.key), cap(s.rec)) > maxScratch {
		return scratch{}
	}
	return s
}
