package keyspace

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSweepIsInvisibleToReaders ends leases and sweeps them key by key while readers read. At each revision a reader
// sees all keys of a lease or none.
func TestSweepIsInvisibleToReaders(t *testing.T) {
	const keys, rounds = 20, 60
	h := newFixture(t)
	var stop atomic.Bool
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for i := uint64(0); !stop.Load(); i++ {
				rev := int64(0)
				if i%2 == 0 {
					rev = 1 + rand.Int64N(h.store.Revision())
				}
				res, err := h.store.Range(context.Background(), RangeRequest{
					Key: []byte("k"), End: []byte("l"), Revision: rev, CountOnly: i%3 == 0,
				})
				if err != nil || res.Count%keys != 0 {
					t.Errorf("at %d (asked %d): %d keys, %v", res.Revision, rev, res.Count, err)
					return
				}
			}
		})
	}
	for round := range rounds {
		id := int64(round%3 + 1)
		h.grant(id)
		h.write(func(w *Writer) {
			err := w.Group(func() error {
				for i := range keys {
					if _, err := w.Put(PutRequest{Key: fmt.Appendf(nil, "k%d/%02d", id, i), Lease: id}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		h.write(func(w *Writer) { h.end(w, id) })
		for range round % keys {
			h.write(func(w *Writer) { _, _ = w.Sweep(1 + round%3) })
		}
	}
	stop.Store(true)
	readers.Wait()
}

// TestWatchersReceiveEveryEventDuringWrites registers watchers from various revisions while changes are published,
// with queues too small for them. Each watcher must receive every event of its keys from its start on, once and in
// order.
func TestWatchersReceiveEveryEventDuringWrites(t *testing.T) {
	const watchers, lastRevision = 24, 600
	h := newFixture(t)
	hub := NewHub(h.store)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var readers sync.WaitGroup
	for i := range watchers {
		readers.Go(func() {
			st := hub.NewStream(StreamLimits{Events: 1 + i%5})
			defer st.Close()
			for ctx.Err() == nil {
				if err := watchToTheEnd(ctx, h.store, st, i, lastRevision); err != nil {
					t.Error(err)
					cancel()
				}
				if h.store.Revision() >= lastRevision {
					return
				}
			}
		})
	}
	for id := int64(1); h.store.Revision() < lastRevision; id++ {
		h.grant(id)
		hub.Publish(h.write(func(w *Writer) { oneOfEach(t, h, w, id) }))
	}
	readers.Wait()
}

// oneOfEach makes 10 events of the key k, each at a revision of its own. Because every revision is an event of k,
// gaps are easy to see.
func oneOfEach(t *testing.T, h *fixture, w *Writer, id int64) {
	for i := range 4 {
		if _, err := w.Put(PutRequest{Key: []byte("k"), Lease: id}); err != nil {
			t.Error(err)
		}
		if i%2 == 1 {
			if _, err := w.DeleteRange(DeleteRequest{Key: []byte("k")}); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := w.Put(PutRequest{Key: []byte("k"), Lease: id}); err != nil {
		t.Error(err)
	}
	h.end(w, id)
	if _, err := w.Sweep(int(id % 2)); err != nil {
		t.Error(err)
	}
}

// watchToTheEnd reads the events of k, which has one at every revision above 1.
func watchToTheEnd(ctx context.Context, s *Store, st *Stream, i int, last Revision) error {
	start := Revision(0)
	if i%3 > 0 {
		start = 2 + rand.Int64N(s.Revision()+3)
	}
	req := WatchRequest{Key: []byte("k"), StartRevision: start}
	if i%2 == 0 {
		req.Key, req.End = []byte("a"), []byte{0}
	}
	id, err := st.Watch(req)
	if err != nil {
		return err
	}
	defer st.Cancel(id)
	for next := start; next <= last; {
		r, err := st.Next(ctx)
		if err != nil {
			return err
		}
		switch {
		case r.WatchID != id || r.Canceled:
			continue // progress, or of the previous watcher
		case r.Created:
			if next == 0 {
				next = r.Revision + 1
			}
			if i%2 == 1 {
				st.RequestProgress()
			}
			continue
		}
		for _, e := range r.Events {
			if e.KV.ModRevision != next {
				return fmt.Errorf("watcher %d from %d: event of revision %d, expected %d", i, start, e.KV.ModRevision, next)
			}
			next++
		}
		if rand.IntN(50) == 0 {
			return nil
		}
	}
	return nil
}

// TestInterruptedNextLosesNothing ends the context of Next and loses no event. Close wakes a waiting Next.
func TestInterruptedNextLosesNothing(t *testing.T) {
	h := newFixture(t)
	hub := NewHub(h.store)
	st := hub.NewStream(StreamLimits{})
	if _, err := st.Watch(WatchRequest{Key: []byte("k"), PrevKV: true}); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancelCause(context.Background())
	reason := errors.New("enough")
	cancel(reason)
	if _, err := st.Next(canceled); !errors.Is(err, reason) {
		t.Fatalf("got %v", err)
	}
	if r, err := st.Next(context.Background()); err != nil || !r.Created {
		t.Fatalf("got %+v, %v", r, err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if _, err := st.Next(context.Background()); !errors.Is(err, ErrStreamClosed) {
			t.Errorf("got %v", err)
		}
	})
	st.Close()
	st.Close()
	waiting.Wait()
	if _, err := st.Watch(WatchRequest{Key: []byte("k")}); !errors.Is(err, ErrStreamClosed) {
		t.Fatalf("got %v", err)
	}
	if hub.count != 0 || len(hub.keys) != 0 {
		t.Fatalf("%d watchers are left", hub.count)
	}
}

// TestLongScansHonourContext cancels the context of long scans.
func TestLongScansHonourContext(t *testing.T) {
	h := newFixture(t)
	h.write(func(w *Writer) {
		for i := range 2 * contextEvery {
			if _, err := w.Put(PutRequest{Key: fmt.Appendf(nil, "%05d", i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := h.store.Range(ctx, RangeRequest{Key: []byte{0}, End: []byte{0}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

// compactingContext compacts when a scan checks its context.
type compactingContext struct {
	context.Context
	compact func()
}

func (c compactingContext) Err() error {
	c.compact()
	return nil
}

// TestReadFailsIfItsRevisionIsCompactedMeanwhile compacts a revision during a read of it. The read must fail, because
// versions that it missed may have been trimmed.
func TestReadFailsIfItsRevisionIsCompactedMeanwhile(t *testing.T) {
	h := newFixture(t)
	h.write(func(w *Writer) {
		for i := range 2 * contextEvery {
			if _, err := w.Put(PutRequest{Key: fmt.Appendf(nil, "%05d", i)}); err != nil {
				t.Fatal(err)
			}
		}
	})
	before := h.store.Revision() - 1
	compact := sync.OnceFunc(func() {
		h.write(func(w *Writer) {
			if err := w.Compact(before + 1); err != nil {
				t.Error(err)
			}
		})
	})
	_, err := h.store.Range(compactingContext{context.Background(), compact}, RangeRequest{
		Key: []byte{0}, End: []byte{0}, Revision: before,
	})
	if !errors.Is(err, ErrCompacted) {
		t.Fatalf("got %v", err)
	}
}

// TestRepeatedPutDoesNotRebindLease puts a key twice under the same lease. The second put calls neither Attach nor
// Detach.
func TestRepeatedPutDoesNotRebindLease(t *testing.T) {
	h := newFixture(t)
	h.grant(1)
	h.write(func(w *Writer) {
		for range 3 {
			if _, err := w.Put(PutRequest{Key: []byte("a"), Lease: 1}); err != nil {
				t.Fatal(err)
			}
		}
	})
	if h.leases.calls != 1 {
		t.Fatalf("%d calls", h.leases.calls)
	}
}
