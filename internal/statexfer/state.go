package statexfer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/memberpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
)

// The stream of a whole state contains everything in the database except the log and the member's own records.
//
// It begins with stateMagic and a version. Frames follow: the length and a checksum in 4 bytes each, then the
// contents. The checksum also covers everything before the frame except lengths and checksums.
//
// The first frame is a memberpb.StateHeader. The next frames hold records in ascending order of keys, each a key and
// a value with their lengths in front. The last frame holds the number of all records.
const (
	stateMagic   = "leasekeeper state"
	stateVersion = 1

	// frameBytes is the size at which a frame is complete. maxFrame is the largest allowed size, far above any
	// record's.
	frameBytes = 64 << 10
	maxFrame   = 256 << 20
	frameHead  = 8
)

// The first byte of a frame is its kind.
const (
	frameHeader  = 'h'
	frameRecords = 'r'
	frameEnd     = 'e'
)

// sharedFamilies are the first bytes of the keys that members share, in ascending order.
var sharedFamilies = []byte{
	record.FamilyAccess, keyspace.FamilyEnded, keyspace.FamilyHistory, keyspace.FamilyMeta, record.FamilyName, record.FamilyRoster, record.FamilyPast,
	record.FamilyLease, record.FamilyAudit, keyspace.FamilyVersions, record.FamilyLeadership,
}

// shared reports whether members share a record.
func shared(key []byte) bool {
	return len(key) > 0 && bytes.IndexByte(sharedFamilies, key[0]) >= 0 || sharedOwn(key)
}

// sharedOwn reports whether members share a record although it is among each member's own. KeyForgotten is shared because
// it decides about tokens when an entry is applied, and so must be the same on every member. KeyHoldOff is shared because
// any member may lead before the hold-off is over.
func sharedOwn(key []byte) bool {
	return bytes.Equal(key, record.KeyForgotten) || bytes.Equal(key, record.KeyHoldOff)
}

var stateSums = crc32.MakeTable(crc32.Castagnoli)

// Write writes the whole state in a snapshot of a member's database.
func Write(w io.Writer, snapshot *pebble.Snapshot) error {
	state, err := NewReader(snapshot)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, state)
	return errors.Join(err, state.Close())
}

// A Reader reads the whole state as a stream; see [Stage]. Its memory does not grow with the state.
type Reader struct {
	it      *pebble.Iterator
	sum     uint32
	frame   []byte
	rest    []byte // the unread part of frame
	records uint64 // number of records read
	err     error  // result of Read after the last frame
}

// NewReader reads from a snapshot of a member's database. The caller must close it before the snapshot. If the
// member's own state is replaced meanwhile, the Reader continues with the state in the snapshot, or fails.
func NewReader(snapshot *pebble.Snapshot) (*Reader, error) {
	it, err := snapshot.NewIter(nil) // one iterator is consistent in itself
	if err != nil {
		return nil, err
	}
	s := &Reader{it: it}
	if err := s.begin(); err != nil {
		return nil, errors.Join(err, it.Close())
	}
	return s, nil
}

// begin makes the opening and the header frame.
func (s *Reader) begin() error {
	identity, applied := new(logpb.Identity), new(logpb.Applied)
	for _, own := range []struct {
		key []byte
		m   proto.Message
	}{{record.KeyIdentity, identity}, {record.KeyApplied, applied}} {
		if !s.it.SeekGE(own.key) || !bytes.Equal(s.it.Key(), own.key) {
			return errors.Join(s.it.Error(), fmt.Errorf("there is no state to be sent: record %q is missing", own.key))
		}
		value, err := s.it.ValueAndErr()
		if err == nil {
			err = proto.Unmarshal(value, own.m)
		}
		if err != nil {
			return &record.DamagedError{What: fmt.Sprintf("record %q cannot be read", own.key), Err: err}
		}
	}
	header := &memberpb.StateHeader{
		Format: identity.Format, ClusterId: identity.ClusterId, Index: applied.Index, Term: applied.Term,
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(header)
	if err != nil {
		return err
	}
	opening := append([]byte(stateMagic), stateVersion)
	s.sum = crc32.Update(0, stateSums, opening)
	s.reset()
	s.frame = append(append(s.frame, frameHeader), encoded...)
	s.seal()
	s.rest = append(opening, s.rest...)
	s.it.First()
	return nil
}

// reset begins a frame.
func (s *Reader) reset() { s.frame = append(s.frame[:0], make([]byte, frameHead)...) }

// seal completes a frame, so that Read can return it.
func (s *Reader) seal() {
	body := s.frame[frameHead:]
	s.sum = crc32.Update(s.sum, stateSums, body)
	binary.BigEndian.PutUint32(s.frame, uint32(len(body)))
	binary.BigEndian.PutUint32(s.frame[4:], s.sum)
	s.rest = s.frame
}

// Read is part of io.Reader.
func (s *Reader) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.err == nil {
			s.err = s.next()
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// next makes the next frame. When the iterator is at its end, it makes the last frame.
func (s *Reader) next() error {
	if s.it == nil {
		return io.EOF
	}
	s.reset()
	s.frame = append(s.frame, frameRecords)
	for s.it.Valid() && len(s.frame) < frameBytes {
		key := s.it.Key()
		if !shared(key) {
			if err := s.skip(key); err != nil {
				return err
			}
			continue
		}
		value, err := s.it.ValueAndErr()
		if err != nil {
			return err
		}
		s.frame = binary.AppendUvarint(s.frame, uint64(len(key)))
		s.frame = append(s.frame, key...)
		s.frame = binary.AppendUvarint(s.frame, uint64(len(value)))
		s.frame = append(s.frame, value...)
		s.records++
		s.it.Next()
	}
	switch {
	case s.it.Error() != nil:
		return s.it.Error()
	case len(s.frame) > maxFrame:
		return fmt.Errorf("record %d is too large to be sent", s.records)
	case len(s.frame) == frameHead+1: // no record was left
		s.frame = binary.BigEndian.AppendUint64(append(s.frame[:frameHead], frameEnd), s.records)
		s.seal()
		return s.Close()
	}
	s.seal()
	return nil
}

// skip skips records that are not sent: the log and the member's own records.
func (s *Reader) skip(key []byte) error {
	switch {
	case len(key) > 0 && key[0] == record.FamilyLog:
		s.it.SeekGE([]byte{record.FamilyLog + 1})
	case len(key) > 0 && key[0] == record.FamilyRaft:
		s.it.Next()
	default: // refuse, so that no record is lost silently
		return fmt.Errorf("record %q cannot be sent: this program does not know whether members share it", key)
	}
	return nil
}

// Close closes the iterator. Reading ends.
func (s *Reader) Close() error {
	if s.it == nil {
		return nil
	}
	err := s.it.Close()
	s.it = nil
	if s.err == nil && err != nil {
		s.err = err
	}
	return err
}

// stateParser parses the stream of a Reader. It uses nothing before it has verified the checksum.
type stateParser struct {
	from    io.Reader
	sum     uint32
	frame   bytes.Buffer
	records uint64
	last    []byte // key of the last record
}

// errBadState returns the error that refuses a state.
func errBadState(format string, args ...any) error {
	return fmt.Errorf("the state that another member sent is refused, and this member keeps its own: "+format, args...)
}

// header parses the opening and the header frame.
func (p *stateParser) header() (*memberpb.StateHeader, error) {
	opening := make([]byte, len(stateMagic)+1)
	if _, err := io.ReadFull(p.from, opening); err != nil {
		return nil, cutOff(err)
	}
	if string(opening[:len(stateMagic)]) != stateMagic {
		return nil, errBadState("it does not begin like one")
	}
	if version := opening[len(stateMagic)]; version != stateVersion {
		return nil, errBadState("it is of version %d and this program knows version %d: use versions of leasekeeper that are next to each other", version, stateVersion)
	}
	p.sum = crc32.Update(0, stateSums, opening)
	kind, body, err := p.next()
	if err != nil {
		return nil, err
	}
	header := new(memberpb.StateHeader)
	if kind != frameHeader || proto.Unmarshal(body, header) != nil {
		return nil, errBadState("its header cannot be read")
	}
	return header, nil
}

// each calls yield with all records, in ascending order of keys. Key and value are only valid during the call.
func (p *stateParser) each(yield func(key, value []byte) error) error {
	for {
		kind, body, err := p.next()
		switch {
		case err != nil:
			return err
		case kind == frameEnd && len(body) == 8:
			if n := binary.BigEndian.Uint64(body); n != p.records {
				return errBadState("it has %d records and says that it has %d", p.records, n)
			}
			return nil
		case kind != frameRecords:
			return errBadState("it has a frame of kind %q", kind)
		}
		for len(body) > 0 {
			if body, err = p.record(body, yield); err != nil {
				return err
			}
		}
	}
}

func (p *stateParser) record(body []byte, yield func(key, value []byte) error) (rest []byte, err error) {
	key, body, ok := record.CutBytes(body)
	value, rest, ok2 := record.CutBytes(body)
	switch {
	case !ok || !ok2:
		return nil, errBadState("record %d cannot be read", p.records)
	case p.records > 0 && bytes.Compare(p.last, key) >= 0:
		return nil, errBadState("record %q is out of order", key)
	case !shared(key):
		return nil, errBadState("it has a record %q, which members do not share: was it written by a newer version?", key)
	}
	p.last = append(p.last[:0], key...)
	p.records++
	return rest, yield(key, value)
}

// next reads a frame and verifies it. Its results are valid until the next call.
func (p *stateParser) next() (kind byte, body []byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(p.from, head[:]); err != nil {
		return 0, nil, cutOff(err)
	}
	size := binary.BigEndian.Uint32(head[:])
	if size == 0 || size > maxFrame {
		return 0, nil, errBadState("it is damaged: a frame has %d bytes", size)
	}
	p.frame.Reset()
	if _, err := io.CopyN(&p.frame, p.from, int64(size)); err != nil { // the buffer only grows with the bytes that arrive
		return 0, nil, cutOff(err)
	}
	p.sum = crc32.Update(p.sum, stateSums, p.frame.Bytes())
	if p.sum != binary.BigEndian.Uint32(head[4:]) {
		return 0, nil, errBadState("it is damaged: a checksum is wrong after %d records", p.records)
	}
	return p.frame.Bytes()[0], p.frame.Bytes()[1:], nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errBadState("it is not complete")
	}
	return errBadState("it cannot be read: %w", err)
}
