package keyspace

import "encoding/binary"

// The first byte of every record says what it is and in which format, so a
// later format can stand beside this one.
const (
	formatValue     = 0x11 // 'v': a version with a value
	formatTombstone = 0x12 // 'v': the key was deleted here
	formatPut       = 0x21 // 'h': one event
	formatDelete    = 0x22 // 'h': one event
	formatEvents    = 0x23 // 'h': several
	formatEnded     = 0x31 // 'e'
	formatRevision  = 0x41 // 'm'
)

// version is what a 'v' record says. A tombstone has only deleted set.
type version struct {
	deleted    bool
	create     Revision // 0 < create ≤ the record's own revision
	version    int64    // ≥ 1: puts since create
	lease      int64    // 0: none
	generation uint64   // of lease; 0 iff lease is 0
	value      []byte   // shares the memory of the record
}

var tombstone = []byte{formatTombstone}

func appendVersion(dst []byte, v *version) []byte {
	dst = append(dst, formatValue)
	dst = binary.AppendUvarint(dst, uint64(v.create))
	dst = binary.AppendUvarint(dst, uint64(v.version))
	dst = binary.AppendVarint(dst, v.lease)
	dst = binary.AppendUvarint(dst, v.generation)
	return append(dst, v.value...)
}

// decodeVersion reads a 'v' record; key is named if it makes no sense.
func decodeVersion(key, rec []byte) (version, error) {
	d := decoder{rest: rec}
	switch d.byte() {
	case formatTombstone:
		if len(d.rest) != 0 || d.bad {
			return version{}, corrupt(key, "%d bytes behind a tombstone", len(d.rest))
		}
		return version{deleted: true}, nil
	case formatValue:
	default:
		return version{}, corrupt(key, "unknown format of a version")
	}
	v := version{
		create:     d.positive(),
		version:    d.positive(),
		lease:      d.varint(),
		generation: d.uvarint(),
	}
	if d.bad {
		return version{}, corrupt(key, "a number in a version makes no sense")
	}
	if (v.lease == 0) != (v.generation == 0) {
		return version{}, corrupt(key, "lease %d with generation %d", v.lease, v.generation)
	}
	v.value = d.rest
	return v, nil
}

// event is one of those that an 'h' record tells of; the value of a put is in 'v'.
type historyEvent struct {
	rev     Revision
	deleted bool
	key     []byte // shares the memory of the record
}

func appendEvent(dst []byte, deleted bool, key []byte) []byte {
	if deleted {
		dst = append(dst, formatDelete)
	} else {
		dst = append(dst, formatPut)
	}
	return append(dst, key...)
}

// appendPacked appends an event to a record of several: how much later it was
// than the one before, or than revision 0, and twice that if it is a delete and
// one more; then the key, with its length in front.
func appendPacked(dst []byte, later Revision, deleted bool, key []byte) []byte {
	head := uint64(later) << 1
	if deleted {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	return append(dst, key...)
}

// events takes the events out of an 'h' record, one after the other.
type events struct {
	key     []byte       // of the record
	last    Revision     // in it: that of the last event
	current historyEvent // taken last
	rest    []byte       // behind it
}

// decodeEvents takes out the first event of a record.
func decodeEvents(key, rec []byte) (events, error) {
	last, _, err := splitHistoryKey(key)
	if err != nil {
		return events{}, err
	}
	e := events{key: key, last: last}
	switch {
	case len(rec) < 2:
		return events{}, corrupt(key, "no event in it")
	case rec[0] == formatPut || rec[0] == formatDelete:
		e.current = historyEvent{rev: last, deleted: rec[0] == formatDelete, key: rec[1:]}
		return e, nil
	case rec[0] == formatEvents:
		e.rest = rec[1:]
		err := e.next()
		return e, err
	}
	return events{}, corrupt(key, "unknown format of an event")
}

// next takes out the next event. There must be one.
func (e *events) next() error {
	d := decoder{rest: e.rest}
	head, size := d.uvarint(), d.uvarint()
	if d.bad || size == 0 || size > uint64(len(d.rest)) {
		return corrupt(e.key, "an event in it cannot be read")
	}
	e.current.rev += Revision(head >> 1)
	e.current.deleted, e.current.key, e.rest = head&1 != 0, d.rest[:size], d.rest[size:]
	if rev := e.current.rev; rev <= 0 || rev > e.last || len(e.rest) == 0 && rev != e.last {
		return corrupt(e.key, "it has an event of revision %d", rev)
	}
	return nil
}

// ended is what an 'e' record says.
type ended struct {
	revision Revision // at which the lease's keys were deleted, > 1
	lease    int64
	keys     int // how many keys it had, > 0
	swept    int // the first so many of them in order have their tombstones; < keys
}

func appendEnded(dst []byte, e ended) []byte {
	dst = append(dst, formatEnded)
	dst = binary.AppendUvarint(dst, uint64(e.revision))
	dst = binary.AppendVarint(dst, e.lease)
	dst = binary.AppendUvarint(dst, uint64(e.keys))
	return binary.AppendUvarint(dst, uint64(e.swept))
}

func decodeEnded(key, rec []byte) (ended, error) {
	d := decoder{rest: rec}
	if d.byte() != formatEnded {
		return ended{}, corrupt(key, "unknown format of an ended lease")
	}
	e := ended{revision: d.positive(), lease: d.varint(), keys: d.count(), swept: d.count()}
	if d.bad || len(d.rest) != 0 || e.swept >= e.keys {
		return ended{}, corrupt(key, "a number of an ended lease makes no sense")
	}
	return e, nil
}

func appendRevision(dst []byte, rev Revision) []byte {
	return binary.AppendVarint(append(dst, formatRevision), rev)
}

func decodeRevision(key, rec []byte) (Revision, error) {
	d := decoder{rest: rec}
	if d.byte() != formatRevision {
		return 0, corrupt(key, "unknown format of a revision")
	}
	rev := d.varint()
	if d.bad || len(d.rest) != 0 {
		return 0, corrupt(key, "not a revision")
	}
	return rev, nil
}

// decoder takes numbers from the front of a record. The first that is not
// there, or out of its range, makes it bad for good.
type decoder struct {
	rest []byte
	bad  bool
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.bad = true
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	x, n := binary.Uvarint(d.rest)
	return d.took(x, n)
}

func (d *decoder) varint() int64 {
	x, n := binary.Varint(d.rest)
	return int64(d.took(uint64(x), n))
}

func (d *decoder) took(x uint64, n int) uint64 {
	if n <= 0 || d.bad {
		d.bad = true
		return 0
	}
	d.rest = d.rest[n:]
	return x
}

// positive takes a number of 1 to 2⁶³−1.
func (d *decoder) positive() int64 {
	x := int64(d.uvarint())
	d.bad = d.bad || x <= 0
	return x
}

// count takes a number that counts keys: at most 2³², as subs do.
func (d *decoder) count() int {
	x := d.uvarint()
	d.bad = d.bad || x > 1<<32
	return int(x)
}
