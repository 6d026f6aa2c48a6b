package keyspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
)

// SortOrder is the order of a range's result. Its numbers are those of etcd's API.
type SortOrder int32

// The orders of a range's result.
const (
	SortNone SortOrder = iota // like SortAscend
	SortAscend
	SortDescend
)

// SortTarget is the field by which a range's result is sorted. Its numbers are those of etcd's API.
type SortTarget int32

// The targets of a sort.
const (
	SortByKey SortTarget = iota
	SortByVersion
	SortByCreate
	SortByMod
	SortByValue
)

// RangeRequest reads the keys of an interval: only Key if End is empty, all keys from Key on if End is "\x00", else
// [Key, End).
type RangeRequest struct {
	Key, End   []byte
	Limit      int64 // ≤ 0: none
	Revision   int64 // ≤ 0: the current one
	SortOrder  SortOrder
	SortTarget SortTarget
	KeysOnly   bool // return no values
	CountOnly  bool // return no keys
	// PartBytes, if above 0, is roughly the size at which the answer ends, unless Limit ends it before. More then says
	// that there are more keys, and Count is the number of returned keys, because the rest is not read. The answer
	// has at least one key if there is one. It needs the order of keys.
	PartBytes int

	// The bounds filter the returned keys. They are inclusive; 0 means no bound. They do not change Count.
	MinModRevision, MaxModRevision       int64
	MinCreateRevision, MaxCreateRevision int64
}

// RangeResult is the answer to a RangeRequest.
type RangeResult struct {
	KVs      []KV
	More     bool     // the limit cut off keys
	Count    int64    // number of keys in the interval, without limit and bounds
	Revision Revision // the current revision, even if an older one was read
}

func (r *RangeRequest) check() error {
	if len(r.Key) == 0 {
		return ErrEmptyKey
	}
	if r.SortOrder < SortNone || r.SortOrder > SortDescend ||
		r.SortTarget < SortByKey || r.SortTarget > SortByValue {
		return ErrInvalidSort
	}
	return nil
}

// Range reads the keys of an interval. Any goroutine may call it.
func (s *Store) Range(ctx context.Context, req RangeRequest) (RangeResult, error) {
	if err := req.check(); err != nil {
		return RangeResult{}, err
	}
	for {
		res, err := s.readOnce(ctx, &req)
		if errors.Is(err, ErrCompacted) && req.Revision <= 0 {
			continue // the current revision was compacted during the read: read the new one
		}
		if errors.Is(err, ErrReplaced) && s.canReadAgain() {
			continue
		}
		return res, err
	}
}

func (s *Store) readOnce(ctx context.Context, req *RangeRequest) (RangeResult, error) {
	p, err := s.toRead()
	if err != nil {
		return RangeResult{}, err
	}
	rev, err := readable(req.Revision, p.revision, p.compact)
	if err != nil {
		return RangeResult{}, err
	}
	v := s.openView(p, rev)
	res, err := v.collect(ctx, req)
	err = errors.Join(err, v.close())
	if s.replacedSince(p) {
		err = ErrReplaced
	}
	if err != nil {
		return RangeResult{}, err
	}
	// rev may have been compacted during the read; see openView.
	if rev < s.CompactRevision() {
		return RangeResult{}, ErrCompacted
	}
	res.Revision = p.revision
	return res, nil
}

// readable returns the revision to read for a requested one.
func readable(asked, current, compact Revision) (Revision, error) {
	switch {
	case asked <= 0:
		return current, nil
	case asked > current:
		return 0, ErrFutureRevision
	case asked < compact:
		return 0, ErrCompacted
	default:
		return asked, nil
	}
}

// collect fetches, filters, sorts and limits the keys, in this order.
func (v *view) collect(ctx context.Context, req *RangeRequest) (RangeResult, error) {
	var res RangeResult
	in := spanOf(req.Key, req.End)
	if req.CountOnly {
		err := v.scan(ctx, in, func(*item) error { res.Count++; return nil })
		return res, err
	}
	c := collector{req: req, limit: math.MaxInt, room: roomOf(ctx)}
	if req.Limit > 0 && req.Limit < math.MaxInt/2 {
		c.limit = int(req.Limit)
	}
	err := v.scan(ctx, in, func(i *item) error { res.Count++; return c.add(i) })
	if err != nil && !errors.Is(err, errStop) {
		return RangeResult{}, err
	}
	c.trim()
	res.KVs, res.More = c.kvs, c.passed > len(c.kvs)
	if req.PartBytes > 0 {
		res.Count = int64(len(c.kvs))
	}
	if req.KeysOnly {
		// Remove values only after sorting, which may need them.
		for i := range res.KVs {
			res.KVs[i].Value = nil
		}
	}
	return res, nil
}

// collector keeps the first limit items in a request's order. It never holds more than twice as many.
type collector struct {
	req    *RangeRequest
	limit  int // ≥ 1
	kvs    []KV
	bytes  int  // size of all items that were added
	passed int  // number of items that passed the filters
	room   Room // bounds the memory of kvs; nil means no bound
}

func (c *collector) add(i *item) error {
	if !c.req.passes(i) {
		return nil
	}
	c.passed++
	if most := c.req.PartBytes; most > 0 && (len(c.kvs) == c.limit || c.bytes >= most) {
		return errStop
	}
	if c.req.inKeyOrder() && len(c.kvs) == c.limit {
		return nil
	}
	kv, err := i.copyKV(!c.req.KeysOnly || c.req.SortTarget == SortByValue)
	if err != nil {
		return err
	}
	if c.room != nil {
		if err := c.room.Take(kv.size()); err != nil {
			return err
		}
	}
	c.kvs = append(c.kvs, kv)
	c.bytes += kv.size()
	if len(c.kvs)/2 >= c.limit {
		c.trim()
	}
	return nil
}

func (c *collector) trim() {
	if !c.req.inKeyOrder() {
		slices.SortStableFunc(c.kvs, c.req.order)
	}
	if len(c.kvs) > c.limit {
		if c.room != nil {
			for i := c.limit; i < len(c.kvs); i++ {
				c.room.Give(c.kvs[i].size())
			}
		}
		clear(c.kvs[c.limit:])
		c.kvs = c.kvs[:c.limit]
	}
}

func (r *RangeRequest) passes(i *item) bool {
	return (r.MinModRevision == 0 || i.mod >= r.MinModRevision) &&
		(r.MaxModRevision == 0 || i.mod <= r.MaxModRevision) &&
		(r.MinCreateRevision == 0 || i.create >= r.MinCreateRevision) &&
		(r.MaxCreateRevision == 0 || i.create <= r.MaxCreateRevision)
}

// inKeyOrder reports whether a scan yields items in the requested order.
func (r *RangeRequest) inKeyOrder() bool {
	return r.SortTarget == SortByKey && r.SortOrder != SortDescend
}

// order compares two KVs by the requested order. The sort is stable, so equal items stay in the order of their keys.
func (r *RangeRequest) order(a, b KV) int {
	var c int
	switch r.SortTarget {
	case SortByVersion:
		c = cmp.Compare(a.Version, b.Version)
	case SortByCreate:
		c = cmp.Compare(a.CreateRevision, b.CreateRevision)
	case SortByMod:
		c = cmp.Compare(a.ModRevision, b.ModRevision)
	case SortByValue:
		c = bytes.Compare(a.Value, b.Value)
	default:
		c = bytes.Compare(a.Key, b.Key)
	}
	if r.SortOrder == SortDescend {
		return -c
	}
	return c
}

// Bindings calls yield for every live key that has a lease, in the order of keys, until yield returns false. The key
// is only valid during the call. It comes without its value.
func (s *Store) Bindings(yield func(kv KV) bool) error {
	return s.Keys(func(kv KV) bool { return kv.Lease == 0 || yield(kv) })
}

// Keys is like Bindings, for all live keys.
func (s *Store) Keys(yield func(kv KV) bool) error {
	p, err := s.toRead()
	if err != nil {
		return err
	}
	v := s.openView(p, p.revision)
	err = v.scan(context.Background(), spanOf([]byte{0}, []byte{0}), func(i *item) error {
		key, err := i.key()
		kv := KV{Key: key, CreateRevision: i.create, ModRevision: i.mod, Version: i.version.version, Lease: i.lease}
		if err == nil && !yield(kv) {
			return errStop
		}
		return err
	})
	if errors.Is(err, errStop) {
		err = nil
	}
	err = errors.Join(err, v.close())
	if s.replacedSince(p) {
		err = ErrReplaced
	}
	return err
}

// errStop ends a scan early.
var errStop = errors.New("keyspace: enough")
