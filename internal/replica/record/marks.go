package record

import (
	"fmt"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
	"github.com/leasekeeper/leasekeeper/internal/ownership"
)

// The mark of a name is the highest completed tick of its recurring work. It is the value of an ordinary key without a
// lease, so it stays when the name is released or forgotten, and snapshots, restores and clients of etcd's API have it.
// Every member raises it in the same way when it applies a command. So [backend.ParseMark], [backend.Mark.Raised] and
// [backend.Mark.Text] are part of the replicated state: all members need the same.

// MarkKey returns the key of a name's mark in the keyspace.
func MarkKey(name string) []byte { return []byte(backend.MarkPrefix + name) }

// MarkOf decodes the value of the key of a name's mark; nil means that there is no such key. The error is
// [backend.ErrCorrupt].
func MarkOf(name string, value []byte) (backend.Mark, error) {
	m, err := backend.ParseMark(string(value))
	if err != nil {
		return m, fmt.Errorf("the key %q: %w", MarkKey(name), err)
	}
	return m, nil
}

// RaisedMark returns the value of the key after the holder with a token has completed a tick, or nil if the value stays.
// It stays for an empty tick. The error is [backend.ErrInvalid] or [backend.ErrCorrupt].
func RaisedMark(name string, value []byte, tick string, token int64) ([]byte, error) {
	if tick == "" {
		return nil, nil
	}
	before, err := MarkOf(name, value)
	if err != nil {
		return nil, err
	}
	t, err := backend.ParseTick(tick)
	if err != nil {
		return nil, err
	}
	after, err := before.Raised(t, backend.Token(token))
	if err != nil || after == before {
		return nil, err
	}
	return []byte(after.Text()), nil
}

// MarkShows reports whether the value of the key says that the holder with a token has completed a tick, or a later one.
// It says nothing about an empty tick, or the token 0.
func MarkShows(name string, value []byte, tick string, token int64) (bool, error) {
	if tick == "" || token == 0 {
		return false, nil
	}
	m, err := MarkOf(name, value)
	if err != nil {
		return false, err
	}
	t, err := backend.ParseTick(tick)
	if err != nil {
		return false, err
	}
	return m.Token == backend.Token(token) && m.Tick.SameKind(t) && m.Tick.Compare(t) >= 0, nil
}

// Marks are the marks of names in a batch that is being applied.
type Marks struct{ Writer *keyspace.Writer }

// value returns the value of the key of a name's mark; nil if there is no such key.
func (m Marks) value(name string) ([]byte, error) {
	kv, err := m.Writer.Get(MarkKey(name))
	if err != nil || kv == nil {
		return nil, err
	}
	return kv.Value, nil
}

// Raised returns the value that the mark of a name gets; nil if it stays.
func (m Marks) Raised(name, tick string, token int64) ([]byte, error) {
	value, err := m.value(name)
	if err != nil {
		return nil, err
	}
	return RaisedMark(name, value, tick, token)
}

// Put puts a mark, unless its value is nil.
func (m Marks) Put(name string, value []byte) error {
	if value == nil {
		return nil
	}
	_, err := m.Writer.Put(keyspace.PutRequest{Key: MarkKey(name), Value: value})
	return err
}

// CheckRaised returns nil if the mark says that an earlier request of a tenure that is over has recorded the tick. Otherwise it
// returns [ownership.ErrLost].
func (m Marks) CheckRaised(name, tick string, token int64) error {
	value, err := m.value(name)
	if err != nil {
		return err
	}
	if shown, err := MarkShows(name, value, tick, token); shown || err != nil {
		return err
	}
	return ownership.ErrLost
}
