package keyspace

import (
	"context"
	"slices"
	"sync"
)

// sharedReads and sharedBytes bound the finished reads that are kept for other watchers.
const (
	sharedReads = 64
	sharedBytes = 8 << 20
)

// shared lets callers that read the same thing share one read. Callers that come during the read wait for it; the
// newest results are kept for later callers. The result for a key must never change. The zero value is ready, and
// safe for concurrent use.
type shared[K comparable, V any] struct {
	mu    sync.Mutex
	reads map[K]*sharedRead[V] // under way or kept
	kept  []K                  // keys of kept reads, oldest first; len ≤ sharedReads
	bytes int                  // size of the kept reads; ≤ sharedBytes
	made  int                  // number of reads made, for tests
}

type sharedRead[V any] struct {
	done  chan struct{} // closed when the other fields are valid
	value V
	bytes int
	err   error
}

// get returns the result of read, of this call or of another call with the same key. Errors are not shared: a caller
// that waited for a failed read makes its own. bytes is the size of keeping the value.
func (s *shared[K, V]) get(ctx context.Context, key K, read func() (value V, bytes int, err error)) (V, error) {
	for {
		r, own := s.join(key)
		if own {
			r.value, r.bytes, r.err = read()
			s.finish(key, r)
			return r.value, r.err
		}
		select {
		case <-r.done:
		case <-ctx.Done():
			var none V
			return none, context.Cause(ctx)
		}
		if r.err == nil {
			return r.value, nil
		}
	}
}

// join returns the read of a key, and reports whether the caller must make it.
func (s *shared[K, V]) join(key K) (r *sharedRead[V], own bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.reads[key]; r != nil {
		return r, false
	}
	if s.reads == nil {
		s.reads = make(map[K]*sharedRead[V])
	}
	r = &sharedRead[V]{done: make(chan struct{})}
	s.reads[key] = r
	s.made++
	return r, true
}

// finish wakes the waiting callers, and keeps the result unless it failed or is too large.
func (s *shared[K, V]) finish(key K, r *sharedRead[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(r.done)
	if r.err != nil || r.bytes > sharedBytes/4 {
		delete(s.reads, key)
		return
	}
	s.kept = append(s.kept, key)
	s.bytes += r.bytes
	for len(s.kept) > sharedReads || s.bytes > sharedBytes {
		s.bytes -= s.reads[s.kept[0]].bytes
		delete(s.reads, s.kept[0])
		s.kept = s.kept[1:]
	}
}

// pastKey identifies a part of the history.
type pastKey struct {
	key, end          string
	single, unbounded bool
	noPut, noDelete   bool
	from              Revision
	size              portion
}

// pastOf reads history for a watcher from a revision on, shared with all watchers that need the same part.
func (s *Store) pastOf(ctx context.Context, w *watcher, from Revision, size portion) (past, error) {
	if from > s.Revision() {
		return past{next: from}, nil
	}
	key := pastKey{
		key: string(w.in.key), end: string(w.in.end), single: w.in.single, unbounded: w.in.unbounded,
		noPut: w.request.NoPut, noDelete: w.request.NoDelete, from: from, size: size,
	}
	p, err := s.pasts.get(ctx, key, func() (past, int, error) {
		// Take the turn here: callers that wait for this read must hold no turn, because this read may need several.
		endTurn, err := TakeTurn(ctx)
		if err != nil {
			return past{}, 0, err
		}
		defer endTurn()
		p, err := s.history(ctx, w.in, from, w.keeps, size)
		p.events = slices.Clip(p.events)
		bytes := len(key.key) + len(key.end) + eventOverhead
		for i := range p.events {
			bytes += p.events[i].size()
		}
		return p, bytes, err
	})
	// A kept result may have been compacted since.
	if compact := s.CompactRevision(); err == nil && from < compact {
		return past{compacted: compact}, nil
	}
	return p, err
}

// prevKey identifies the previous state of an event's key.
type prevKey struct {
	key string
	rev Revision // of the event
}

// prevOf reads the state of a key before an event, shared with all watchers that need it. It returns nil if the key
// did not exist.
func (s *Store) prevOf(ctx context.Context, e *Event) (*KV, error) {
	return s.prevs.get(ctx, prevKey{string(e.KV.Key), e.KV.ModRevision}, func() (*KV, int, error) {
		endTurn, err := TakeTurn(ctx)
		if err != nil {
			return nil, 0, err
		}
		defer endTurn()
		res, err := s.Range(ctx, RangeRequest{Key: e.KV.Key, Revision: e.KV.ModRevision - 1})
		if err != nil || len(res.KVs) == 0 {
			return nil, 0, err
		}
		kv := &res.KVs[0]
		return kv, 2*len(kv.Key) + len(kv.Value) + eventOverhead, nil
	})
}
