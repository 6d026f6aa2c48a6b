package replica

import (
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/internal/replica/logpb"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// StoredHolder returns the token in a name's record, and what the holder with that token says of itself.
func StoredHolder(db pebble.Reader, name string) (token int64, holder []byte, err error) {
	record := new(logpb.Name)
	if _, err := load(db, nameKey(name), record); err != nil {
		return 0, nil, err
	}
	return record.GetCurrent().GetToken(), record.GetCurrent().GetHolder(), nil
}

// ReadHeld calls yield, until that returns false, with the names that begin with prefix, sort behind after, and are held,
// in order. It sees what [Replica.Flush] wrote.
func ReadHeld(db pebble.Reader, prefix, after string, yield func(name string) bool) error {
	from := nameKey(max(prefix, after+"\x00"))
	if after == "" {
		from = nameKey(prefix)
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: behind(nameKey(prefix))})
	if err != nil {
		return err
	}
	record := new(logpb.Name)
	for valid := it.First(); valid; valid = it.Next() {
		if err := decodeName(it, record); err != nil { // resets the record
			return errors.Join(err, it.Close())
		}
		if record.Current != nil && !yield(string(record.Name)) {
			break
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// behind is the least key behind all that begin with prefix, which begins with a byte below 0xff.
func behind(prefix []byte) []byte {
	end := slices.Clone(prefix)
	for end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return end
}

// A Tenure is one holding of a name. The times are of the day, to be shown; zero if not known.
type Tenure struct {
	Token    int64
	Lease    lessor.ID
	Holder   []byte
	From, To time.Time // To is zero while it lasts
	Why      ownership.Why
	Note     string
}

// ReadHistory returns the last tenures of a name, newest first. It sees what [Replica.Flush] wrote.
func ReadHistory(db pebble.Reader, name string) ([]Tenure, error) {
	record := new(logpb.Name)
	if _, err := load(db, nameKey(name), record); err != nil {
		return nil, err
	}
	var all []Tenure
	if record.Current != nil {
		all = append(all, tenure(record.Current))
	}
	for i := range min(record.Ended, ownership.MaxPast) {
		m := new(logpb.Tenure)
		if found, err := load(db, pastKey(name, record.Ended-1-i), m); err != nil {
			return nil, err
		} else if !found {
			return nil, &DamagedError{What: "a tenure of " + name + " is not there"}
		}
		all = append(all, tenure(m))
	}
	return all, nil
}

func tenure(m *logpb.Tenure) Tenure {
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
