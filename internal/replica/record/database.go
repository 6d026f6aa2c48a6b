package record

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Load reads the record under key into m and reports whether there is one.
func Load(db pebble.Reader, key []byte, m proto.Message) (bool, error) {
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

// Put writes a record into a batch. Encoding our own message and adding to a batch in memory only fail because of a
// bug, so Put panics then.
func Put(b *pebble.Batch, key []byte, m proto.Message) {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err == nil {
		err = b.Set(key, value, nil)
	}
	if err != nil {
		panic(fmt.Sprintf("record: cannot write %q: %v", string(key), err)) // key itself need not be on the heap
	}
}

// Remove deletes a record in a batch.
func Remove(b *pebble.Batch, key []byte) {
	if err := b.Delete(key, nil); err != nil {
		panic(fmt.Sprintf("record: cannot remove %q: %v", string(key), err))
	}
}

// Leases calls yield with every lease's record, in the order of IDs, until yield returns false.
func Leases(db pebble.Reader, yield func(*logpb.Lease) bool) error {
	keyOf := func(m *logpb.Lease) []byte { return LeaseKey(lessor.ID(m.Id)) }
	return each(db, FamilyLease, func() *logpb.Lease { return new(logpb.Lease) }, keyOf, yield)
}

// Leaderships calls yield with every leadership's record, oldest first, until yield returns false.
func Leaderships(db pebble.Reader, yield func(*logpb.Leadership) bool) error {
	keyOf := func(m *logpb.Leadership) []byte { return LeadershipKey(lessor.Position(m.Start)) }
	return each(db, FamilyLeadership, func() *logpb.Leadership { return new(logpb.Leadership) }, keyOf, yield)
}

// Names calls yield with every name's record, in the order of names, until yield returns false.
func Names(db pebble.Reader, yield func(*logpb.Name) bool) error {
	keyOf := func(m *logpb.Name) []byte { return NameKey(string(m.Name)) }
	return each(db, FamilyName, func() *logpb.Name { return new(logpb.Name) }, keyOf, yield)
}

func each[M proto.Message](
	db pebble.Reader, f byte, fresh func() M, keyOf func(M) []byte, yield func(M) bool,
) error {
	it, err := db.NewIter(Family(f))
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

// New returns a record with a message as its value.
func New(key []byte, m proto.Message) Record {
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("record: cannot write record %q: %v", key, err))
	}
	return Record{Key: key, Value: value}
}
