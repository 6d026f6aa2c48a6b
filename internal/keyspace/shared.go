package keyspace

import (
	"context"
	"slices"
	"sync"
)

// How much of what was read for watchers is kept for others who want the very same.
const (
	sharedReads = 64
	sharedBytes = 8 << 20
)

// shared lets all who want to read the same thing at about the same time share one read: those who come
// while it is made wait for it, and the newest ones are kept for those who come later. What is read under a
// key must never change. The zero value is ready, and safe for concurrent use.
type shared[K comparable, V any] struct {
	mu    sync.Mutex
	reads map[K]*sharedRead[V] // under way, or kept
	kept  []K                  // oldest first; len ≤ sharedReads
	bytes int                  // that those kept take; ≤ sharedBytes
	made  int                  // in all, for tests
}

type sharedRead[V any] struct {
	done  chan struct{} // closed once the rest is valid
	value V
	bytes int
	err   error
}

// get returns what read returns, or returned to somebody else. Errors are not shared: a caller that waited for a
// read that failed reads for itself. bytes is what keeping the value takes.
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

// join returns the read of a key, and whether it is the caller's to make.
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

// finish lets those who wait go on, and keeps what was read if that is worthwhile.
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

// pastKey names a piece of history.
type pastKey struct {
	key, end          string
	single, unbounded bool
	noPut, noDelete   bool
	from              Revision
	size              portion
}

// pastOf reads what history would for a watcher, once for all watchers that want the same.
func (s *Store) pastOf(ctx context.Context, w *watcher, size portion) (past, error) {
	from := w.next
	if from > s.Revision() {
		return past{next: from}, nil
	}
	key := pastKey{
		key: string(w.in.key), end: string(w.in.end), single: w.in.single, unbounded: w.in.unbounded,
		noPut: w.request.NoPut, noDelete: w.request.NoDelete, from: from, size: size,
	}
	p, err := s.pasts.get(ctx, key, func() (past, int, error) {
		// Here, since those who wait for this read must not have a turn meanwhile: this one may need several.
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
	// What somebody read before may have been compacted since.
	if compact := s.CompactRevision(); err == nil && from < compact {
		return past{compacted: compact}, nil
	}
	return p, err
}

// prevKey names what was there before an event.
type prevKey struct {
	key string
	rev Revision // of the event
}

// prevOf reads what was there before an event, once for all watchers that want it. It returns nil if that
// was nothing.
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
