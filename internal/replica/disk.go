package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/internal/replica/record"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// The member's own records in the database, by the first byte of their key. The keyspace's families are
// its own ('v', 'h', 'e', 'm').
const (
	familyLog        = record.FamilyLog        // index, 8 bytes big endian → raftpb.Entry
	familyRaft       = record.FamilyRaft       // one key each: see below
	familyLease      = record.FamilyLease      // lease id with its sign bit flipped, 8 bytes big endian → logpb.Lease
	familyLeadership = record.FamilyLeadership // start position, 8 bytes big endian → logpb.Reign
	familyName       = record.FamilyName       // name → logpb.Name
	familyPast       = record.FamilyPast       // name, 0, number of the tenure modulo MaxPast → logpb.Tenure
	familyDraft      = 'd'                     // number, 8 bytes big endian → records of the three above, see drafts.go
)

var (
	keyIdentity  = record.KeyIdentity      // logpb.Identity
	keyHardState = []byte{familyRaft, 'h'} // raftpb.HardState
	keyConfState = []byte{familyRaft, 'c'} // raftpb.ConfState
	keyApplied   = record.KeyApplied       // logpb.Applied: the state holds the log up to here
	keyTruncated = []byte{familyRaft, 't'} // logpb.Applied: the last entry that was removed
	keyDomain    = []byte{familyRaft, 'd'} // logpb.Domain
	keyForgotten = record.KeyForgotten     // logpb.Forgotten
	keyPromised  = []byte{familyRaft, 'p'} // logpb.Promised
	keyPeers     = []byte{familyRaft, 'm'} // logpb.Peers
	keyTerms     = []byte{familyRaft, 's'} // logpb.Terms
	keyNew       = []byte{familyRaft, 'n'} // nothing: the member is new, see found.go
)

// A DamagedError says that a record was not written by this program like that.
type DamagedError = record.DamagedError

func numbered(family byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(make([]byte, 0, 1+8), family), n)
}

func logKey(index uint64) []byte { return numbered(familyLog, index) }

// leaseKey orders ids as signed numbers, so that the records of negative ids are as much at home as others.
func leaseKey(id lessor.ID) []byte { return numbered(familyLease, uint64(id)^(1<<63)) }

func leadershipKey(start lessor.Position) []byte { return numbered(familyLeadership, uint64(start)) }

func nameKey(name string) []byte {
	return append(append(make([]byte, 0, 1+len(name)), familyName), name...)
}

func pastKey(name string, tenure uint64) []byte {
	key := append(append(make([]byte, 0, 1+len(name)+2), familyPast), name...)
	return append(key, 0, byte(tenure%ownership.MaxPast))
}

// family returns the bounds of all keys of a family.
func family(f byte) *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{f}, UpperBound: []byte{f + 1}}
}

// load reads the record under key into m and reports whether there is one.
func load(db pebble.Reader, key []byte, m proto.Message) (bool, error) {
	value, closer, err := db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer closer.Close()
	if err := proto.Unmarshal(value, m); err != nil {
		return false, &DamagedError{What: fmt.Sprintf("record %q cannot be read", string(key)), Err: err}
	}
	return true, nil
}

// put writes a record into a batch. Neither marshalling our own message nor adding to a batch in memory
// can fail, short of a bug.
func put(b *pebble.Batch, key []byte, m proto.Message) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil {
		err = b.Set(key, value, nil)
	}
	if err != nil {
		panic(fmt.Sprintf("replica: cannot write record %q: %v", string(key), err)) // key itself need not be on the heap
	}
}

// remove deletes a record in a batch.
func remove(b *pebble.Batch, key []byte) {
	if err := b.Delete(key, nil); err != nil {
		panic(fmt.Sprintf("replica: cannot remove record %q: %v", string(key), err))
	}
}

// readEntries calls yield with the entries of the log from index lo on, in order, until it returns false.
func readEntries(db pebble.Reader, lo uint64, yield func(*raftpb.Entry) bool) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: logKey(lo), UpperBound: []byte{familyLog + 1}})
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		entry, err := readEntry(it.Key(), it.Value())
		if err != nil {
			return errors.Join(err, it.Close())
		}
		if !yield(entry) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

func readEntry(key, value []byte) (*raftpb.Entry, error) {
	if len(key) != 9 {
		return nil, &DamagedError{What: fmt.Sprintf("log key %x has a wrong length", key)}
	}
	index := binary.BigEndian.Uint64(key[1:])
	entry := new(raftpb.Entry)
	if err := proto.Unmarshal(value, entry); err != nil {
		return nil, &DamagedError{What: fmt.Sprintf("log entry %d cannot be read", index), Err: err}
	}
	if entry.GetIndex() != index {
		return nil, &DamagedError{What: fmt.Sprintf("log entry %d calls itself %d", index, entry.GetIndex())}
	}
	return entry, nil
}

// readLeases calls yield with every lease record, in order of id.
func readLeases(db pebble.Reader, yield func(*logpb.Lease) bool) error {
	keyOf := func(m *logpb.Lease) []byte { return leaseKey(lessor.ID(m.Id)) }
	return readFamily(db, familyLease, func() *logpb.Lease { return new(logpb.Lease) }, keyOf, yield)
}

// readLeaderships calls yield with every leadership record, oldest first.
func readLeaderships(db pebble.Reader, yield func(*logpb.Reign) bool) error {
	keyOf := func(m *logpb.Reign) []byte { return leadershipKey(lessor.Position(m.Start)) }
	return readFamily(db, familyLeadership, func() *logpb.Reign { return new(logpb.Reign) }, keyOf, yield)
}

// readNames calls yield with every record of a name, in order of names.
func readNames(db pebble.Reader, yield func(*logpb.Name) bool) error {
	keyOf := func(m *logpb.Name) []byte { return nameKey(string(m.Name)) }
	return readFamily(db, familyName, func() *logpb.Name { return new(logpb.Name) }, keyOf, yield)
}

func readFamily[M proto.Message](
	db pebble.Reader, f byte, fresh func() M, keyOf func(M) []byte, yield func(M) bool,
) error {
	it, err := db.NewIter(family(f))
	if err != nil {
		return err
	}
	for it.First(); it.Valid(); it.Next() {
		m := fresh()
		if err := proto.Unmarshal(it.Value(), m); err != nil {
			return errors.Join(&DamagedError{What: fmt.Sprintf("record %x cannot be read", it.Key()), Err: err}, it.Close())
		}
		if !bytes.Equal(it.Key(), keyOf(m)) {
			return errors.Join(&DamagedError{What: fmt.Sprintf("record %x is not where its key says", it.Key())}, it.Close())
		}
		if !yield(m) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// logEnd is greater than every log key.
var logEnd = numbered(familyLog, math.MaxUint64)

// decodeName reads the record of a name under the iterator.
func decodeName(it *pebble.Iterator, m *logpb.Name) error {
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(value, m); err != nil {
		return &DamagedError{What: fmt.Sprintf("record %q cannot be read", it.Key()), Err: err}
	}
	return nil
}
