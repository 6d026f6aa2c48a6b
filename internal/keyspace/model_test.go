package keyspace

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
)

// model keeps every revision in memory, in the simplest way.
type model struct {
	states  []map[string]KV // by revision; states[1] is empty
	events  []Event         // all events in order, with PrevKV
	compact int64
	leases  map[int64]bool
}

func newModel() *model {
	return &model{states: []map[string]KV{nil, {}}, compact: -1, leases: make(map[int64]bool)}
}

func (m *model) lastRevision() int64    { return int64(len(m.states) - 1) }
func (m *model) current() map[string]KV { return m.states[m.lastRevision()] }

// request executes a write request on a copy of the newest state. The copy becomes a new revision if something
// changed.
func (m *model) request(f func(state map[string]KV, rev int64)) {
	events := len(m.events)
	state := maps.Clone(m.current())
	f(state, m.lastRevision()+1)
	if len(m.events) > events {
		m.states = append(m.states, state)
	}
}

func (m *model) put(state map[string]KV, rev int64, req PutRequest) (prev *KV, err error) {
	old, found := state[string(req.Key)]
	switch {
	case len(req.Key) == 0:
		return nil, ErrEmptyKey
	case req.IgnoreValue && len(req.Value) > 0:
		return nil, ErrValueProvided
	case req.IgnoreLease && req.Lease != 0:
		return nil, ErrLeaseProvided
	case req.Lease != 0 && !m.leases[req.Lease]:
		return nil, ErrLeaseNotFound
	case !found && (req.IgnoreValue || req.IgnoreLease):
		return nil, ErrKeyNotFound
	}
	kv := KV{Key: req.Key, Value: req.Value, Lease: req.Lease, CreateRevision: rev, ModRevision: rev, Version: 1}
	if found {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		prev = &old
	}
	if req.IgnoreValue {
		kv.Value = old.Value
	}
	if req.IgnoreLease {
		kv.Lease = old.Lease
	}
	state[string(req.Key)] = kv
	m.events = append(m.events, Event{Type: EventPut, KV: kv, PrevKV: prev})
	return prev, nil
}

// remove deletes the keys for which match is true.
func (m *model) remove(state map[string]KV, rev int64, match func(KV) bool) (prev []KV) {
	for _, key := range slices.Sorted(maps.Keys(state)) {
		kv := state[key]
		if !match(kv) {
			continue
		}
		delete(state, key)
		m.events = append(m.events, Event{Type: EventDelete, KV: KV{Key: []byte(key), ModRevision: rev}, PrevKV: &kv})
		prev = append(prev, kv)
	}
	return prev
}

func (m *model) rangeKeys(req RangeRequest) (RangeResult, error) {
	rev := req.Revision
	switch {
	case rev <= 0:
		rev = m.lastRevision()
	case rev > m.lastRevision():
		return RangeResult{}, ErrFutureRevision
	case rev < m.compact:
		return RangeResult{}, ErrCompacted
	}
	return rangeState(m.states[rev], req, m.lastRevision()), nil
}

// rangeState reads from one state. current is the revision in the result.
func rangeState(state map[string]KV, req RangeRequest, current int64) RangeResult {
	res := RangeResult{Revision: current}
	for _, key := range slices.Sorted(maps.Keys(state)) {
		kv := state[key]
		if !within(kv.Key, req.Key, req.End) {
			continue
		}
		res.Count++
		if req.CountOnly ||
			req.MinModRevision != 0 && kv.ModRevision < req.MinModRevision ||
			req.MaxModRevision != 0 && kv.ModRevision > req.MaxModRevision ||
			req.MinCreateRevision != 0 && kv.CreateRevision < req.MinCreateRevision ||
			req.MaxCreateRevision != 0 && kv.CreateRevision > req.MaxCreateRevision {
			continue
		}
		res.KVs = append(res.KVs, kv)
	}
	slices.SortStableFunc(res.KVs, func(a, b KV) int {
		c := []int{
			bytes.Compare(a.Key, b.Key), cmp.Compare(a.Version, b.Version),
			cmp.Compare(a.CreateRevision, b.CreateRevision), cmp.Compare(a.ModRevision, b.ModRevision),
			bytes.Compare(a.Value, b.Value),
		}[req.SortTarget]
		if req.SortOrder == SortDescend {
			return -c
		}
		return c
	})
	if req.Limit > 0 && int(req.Limit) < len(res.KVs) {
		res.KVs, res.More = res.KVs[:req.Limit], true
	}
	if req.KeysOnly {
		for i := range res.KVs {
			res.KVs[i].Value = nil
		}
	}
	return res
}

func within(k, key, end []byte) bool {
	switch {
	case len(end) == 0:
		return bytes.Equal(k, key)
	case bytes.Equal(end, []byte{0}):
		return bytes.Compare(k, key) >= 0
	default:
		return bytes.Compare(k, key) >= 0 && bytes.Compare(k, end) < 0
	}
}

// watched returns the events that a watcher from a revision on must have received by now.
func (m *model) watched(req WatchRequest, from int64) []Event {
	var out []Event
	for _, e := range m.events {
		wanted := e.Type == EventPut && !req.NoPut || e.Type == EventDelete && !req.NoDelete
		if e.KV.ModRevision < from || !wanted || !within(e.KV.Key, req.Key, req.End) {
			continue
		}
		out = append(out, e)
	}
	return out
}
