package keyspace

import (
	"bytes"

	"github.com/cockroachdb/pebble/v2"

	"github.com/leasekeeper/leasekeeper/internal/interval"
)

// span is an interval of keys: [key, end), or all keys from key on, or key alone.
type span struct {
	key, end  []byte
	single    bool // the span is key alone, and end is unused
	unbounded bool // the span has no end, and end is unused
}

// spanOf returns the span of a key and a range end by etcd's rules.
func spanOf(key, end []byte) span {
	switch {
	case len(end) == 0:
		return span{key: key, single: true}
	case len(end) == 1 && end[0] == 0:
		return span{key: key, unbounded: true}
	default:
		return span{key: key, end: end}
	}
}

// interval returns the span, which is not a single key, as a key of the hub's tree.
func (s span) interval() interval.Interval {
	return interval.Interval{Start: string(s.key), End: string(s.end), Unbounded: s.unbounded}
}

func (s span) empty() bool {
	return !s.single && !s.unbounded && bytes.Compare(s.key, s.end) >= 0
}

func (s span) contains(key []byte) bool {
	if s.single {
		return bytes.Equal(s.key, key)
	}
	return bytes.Compare(s.key, key) <= 0 && (s.unbounded || bytes.Compare(key, s.end) < 0)
}

// bounds returns the iterator bounds of the versions of the span's keys. The span must not be empty.
func (s span) bounds() *pebble.IterOptions {
	o := &pebble.IterOptions{LowerBound: appendVersionPrefix(nil, s.key)}
	switch {
	case s.single:
		o.UpperBound = pastPrefix(bytes.Clone(o.LowerBound))
	case s.unbounded:
		o.UpperBound = []byte{FamilyVersions + 1}
	default:
		o.UpperBound = appendVersionPrefix(nil, s.end)
	}
	return o
}
