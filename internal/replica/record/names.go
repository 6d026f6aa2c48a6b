package record

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// Scratch is reused memory for the records that are stored most often.
type Scratch struct {
	Name   *logpb.Name
	Tenure *logpb.Tenure
	Lease  *logpb.Lease
}

// NewScratch returns memory for one record of each type.
func NewScratch() Scratch { return Scratch{new(logpb.Name), new(logpb.Tenure), new(logpb.Lease)} }

// SetName sets m to the record of a name. current is memory for the record of its current tenure.
func SetName(m *logpb.Name, current *logpb.Tenure, r *ownership.Record) {
	m.Name = append(m.Name[:0], r.Name...)
	m.Ended, m.Last = r.Ended, r.Last
	m.Pinned, m.Revoked = optional(r.Pinned), optional(r.Revoked)
	m.Freed, m.FreedOrder, m.Revision = r.Freed, r.FreedOrder, r.Revision
	m.Current = nil
	if r.Current != nil {
		m.Current = current
		SetTenure(current, r.Current)
	}
}

// NameOf decodes the record of a name.
func NameOf(m *logpb.Name) ownership.Record {
	r := ownership.Record{
		Name: string(m.Name), Ended: m.Ended, Last: m.Last, Pinned: reason(m.Pinned), Revoked: reason(m.Revoked),
		Freed: m.Freed, FreedOrder: m.FreedOrder, Revision: m.Revision,
	}
	if m.Current != nil {
		r.Current = TenureOf(m.Current)
	}
	return r
}

// SetTenure sets m to the record of a tenure.
func SetTenure(m *logpb.Tenure, t *ownership.Tenure) {
	m.Token, m.Lease, m.Holder = t.Token, int64(t.Lease), t.Holder
	m.FromMs, m.ToMs, m.Why, m.Note, m.Finished = t.From, t.To, uint32(t.Why), append(m.Note[:0], t.Note...), t.Finished
}

// TenureOf decodes the record of a tenure.
func TenureOf(m *logpb.Tenure) *ownership.Tenure {
	return &ownership.Tenure{
		Token: m.Token, Lease: lessor.ID(m.Lease), Holder: m.Holder, From: m.FromMs, To: m.ToMs, Why: ownership.Why(m.Why), Note: string(m.Note),
		Finished: m.Finished,
	}
}

func optional(s *string) []byte {
	if s == nil {
		return nil
	}
	return append([]byte{}, *s...)
}

func reason(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// Holder returns the token in a name's record, and the card of the holder with that token.
func Holder(db pebble.Reader, name string) (token int64, card []byte, err error) {
	m := new(logpb.Name)
	if _, err := Load(db, NameKey(name), m); err != nil {
		return 0, nil, err
	}
	return m.GetCurrent().GetToken(), m.GetCurrent().GetHolder(), nil
}

// Held calls yield with the held names that begin with prefix and sort after after, in order, until yield returns
// false. It does not see records in a [Buffer].
func Held(db pebble.Reader, prefix, after string, yield func(name string) bool) error {
	from := NameKey(max(prefix, after+"\x00"))
	if after == "" {
		from = NameKey(prefix)
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: behind(NameKey(prefix))})
	if err != nil {
		return err
	}
	m := new(logpb.Name)
	for valid := it.First(); valid; valid = it.Next() {
		if err := decode(it, m); err != nil { // resets m first
			return errors.Join(err, it.Close())
		}
		if m.Current != nil && !yield(string(m.Name)) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// decode decodes the record at the iterator.
func decode(it *pebble.Iterator, m proto.Message) error {
	value, err := it.ValueAndErr()
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(value, m); err != nil {
		return &DamagedError{What: fmt.Sprintf("record %q cannot be read", it.Key()), Err: err}
	}
	return nil
}

// behind returns the least key greater than all keys with a prefix. The prefix begins with a byte below 0xff.
func behind(prefix []byte) []byte {
	end := slices.Clone(prefix)
	for end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return end
}

// A Tenure is a name's current or former tenure, for display. Times are times of day; zero means unknown.
type Tenure struct {
	Token    int64
	Lease    lessor.ID
	Holder   []byte
	From, To time.Time // To is zero during the tenure
	Why      ownership.Why
	Note     string
}

// History returns the last tenures of a name, newest first. It does not see records in a [Buffer].
func History(db pebble.Reader, name string) ([]Tenure, error) {
	m := new(logpb.Name)
	if _, err := Load(db, NameKey(name), m); err != nil {
		return nil, err
	}
	var all []Tenure
	if m.Current != nil {
		all = append(all, shownTenure(m.Current))
	}
	for i := range min(m.Ended, ownership.MaxPast) {
		past := new(logpb.Tenure)
		if found, err := Load(db, PastKey(name, m.Ended-1-i), past); err != nil {
			return nil, err
		} else if !found {
			return nil, &DamagedError{What: "a tenure of " + name + " is not there"}
		}
		all = append(all, shownTenure(past))
	}
	return all, nil
}

func shownTenure(m *logpb.Tenure) Tenure {
	return Tenure{
		Token: m.Token, Lease: lessor.ID(m.Lease), Holder: m.Holder, From: wallTime(m.FromMs), To: wallTime(m.ToMs),
		Why: ownership.Why(m.Why), Note: string(m.Note),
	}
}

func wallTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// RecoverNames reads the records of names into a registry. Their waiters follow from the keys.
func RecoverNames(db pebble.Reader, names *ownership.Registry) error {
	forgotten := new(logpb.Forgotten)
	if _, err := Load(db, KeyForgotten, forgotten); err != nil {
		return err
	}
	names.RestoreForgotten(forgotten.Last)
	return Names(db, func(m *logpb.Name) bool {
		names.RestoreRecord(NameOf(m))
		return true
	})
}

// CompleteNames checks that keys and records agree. It stores records for names whose keys were written by versions
// without records.
func CompleteNames(db *pebble.DB, names *ownership.Registry) error {
	fresh, err := names.Complete()
	if err != nil {
		return &DamagedError{What: err.Error()}
	}
	if len(fresh) == 0 {
		return nil
	}
	batch := db.NewBatch()
	for i := range fresh {
		m := new(logpb.Name)
		SetName(m, new(logpb.Tenure), &fresh[i])
		Put(batch, NameKey(fresh[i].Name), m)
	}
	return batch.Commit(pebble.NoSync)
}
