package keyspace

import "encoding/binary"

// The first byte of every record gives its kind and format, so that a later format can coexist with this one.
const (
	formatValue     = 0x11 // 'v': a version with a value
	formatTombstone = 0x12 // 'v': the key was deleted here
	formatPut       = 0x21 // 'h': one event
	formatDelete    = 0x22 // 'h': one event
	formatEvents    = 0x23 // 'h': several events
	formatEnded     = 0x31 // 'e'
	formatRevision  = 0x41 // 'm'
)

// version is a decoded 'v' record. In a tombstone only deleted is set.
type version struct {
	deleted    bool
	create     Revision // 0 < create ≤ the record's own revision
	version    int64    // number of puts since create; ≥ 1
	lease      int64    // 0: none
	generation uint64   // of lease; 0 if and only if lease is 0
	value      []byte   // shares memory with the record
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

// decodeVersion decodes a 'v' record. Errors name key.
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

// historyEvent is an event of an 'h' record. The value of a put is in the 'v' record.
type historyEvent struct {
	rev     Revision
	deleted bool
	key     []byte // shares memory with the record
}

func appendEvent(dst []byte, deleted bool, key []byte) []byte {
	if deleted {
		dst = append(dst, formatDelete)
	} else {
		dst = append(dst, formatPut)
	}
	return append(dst, key...)
}

// appendPacked appends an event to a record of several. It writes twice the distance from the previous event's
// revision (or from 0), plus one for a delete; then the length of the key and the key.
func appendPacked(dst []byte, later Revision, deleted bool, key []byte) []byte {
	head := uint64(later) << 1
	if deleted {
		head |= 1
	}
	dst = binary.AppendUvarint(dst, head)
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	return append(dst, key...)
}

// events iterates over the events of an 'h' record.
type events struct {
	key     []byte   // of the record
	last    Revision // of the record's last event
	current historyEvent
	rest    []byte // after current
}

// decodeEvents decodes the first event of a record.
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

// next decodes the next event. There must be one.
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

// ended is a decoded 'e' record.
type ended struct {
	revision Revision // at which the lease's keys were deleted; > 1
	lease    int64
	keys     int // number of the lease's keys; > 0
	swept    int // number of its first keys that have their tombstones; < keys
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

// decoder decodes numbers from the front of a record. After the first number that is missing or out of range it stays
// bad.
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

// positive decodes a number from 1 to 2⁶³−1.
func (d *decoder) positive() int64 {
	x := int64(d.uvarint())
	d.bad = d.bad || x <= 0
	return x
}

// count decodes a number of keys: at most 2³², the number of subs.
func (d *decoder) count() int {
	x := d.uvarint()
	d.bad = d.bad || x > 1<<32
	return int(x)
}
