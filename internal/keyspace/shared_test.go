package keyspace

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

// TestWatchersOfOneKeyShareReads has many watchers of one key read its history and then receive new events, each with
// its previous value.
func TestWatchersOfOneKeyShareReads(t *testing.T) {
	const streams, each, puts = 4, 2_500, 8
	h := newFixture(t)
	hub := NewHub(h.store)
	put := func(i int) {
		hub.Publish(h.write(func(w *Writer) {
			if _, err := w.Put(PutRequest{Key: []byte("k"), Value: fmt.Appendf(nil, "%d", i)}); err != nil {
				t.Error(err)
			}
		}))
	}
	for i := range puts {
		put(i)
	}
	var watching, watchRecord sync.WaitGroup
	watching.Add(streams)
	turns := NewTurns(1) // watchers that wait for a shared read hold no turn
	for range streams {
		watchRecord.Go(func() {
			st := hub.NewStream(StreamLimits{Turns: turns, Client: "c"})
			defer st.Close()
			for range each {
				if _, err := st.Watch(WatchRequest{Key: []byte("k"), StartRevision: 2, PrevKV: true}); err != nil {
					t.Error(err)
				}
			}
			got := make([]int, each) // number of events by watcher
			for seen := 0; seen < each*2*puts; {
				r, err := st.Next(context.Background())
				if err != nil {
					t.Error(err)
					break
				}
				for _, e := range r.Events {
					n := got[r.WatchID]
					if value := fmt.Sprint(n); string(e.KV.Value) != value || (n > 0) != (e.PrevKV != nil) ||
						n > 0 && string(e.PrevKV.Value) != fmt.Sprint(n-1) {
						t.Errorf("event %d of watcher %d is %s", n, r.WatchID, eventText(e))
					}
					got[r.WatchID]++
				}
				before := seen
				if seen += len(r.Events); before < each*puts && seen >= each*puts {
					watching.Done()
				}
			}
		})
	}
	watching.Wait()
	if n := h.store.pasts.made; n != 1 {
		t.Errorf("the past of one key was read %d times for %d watchers", n, streams*each)
	}
	for i := range puts {
		put(puts + i)
	}
	watchRecord.Wait()
	if n := h.store.prevs.made; n > 2*puts {
		t.Errorf("what was before %d events was read %d times for %d watchers", 2*puts, n, streams*each)
	}
}

func TestConcurrentReadsOfOneKeyAreShared(t *testing.T) {
	ctx := context.Background()
	constant := func(v string, bytes int) func() (string, int, error) {
		return func() (string, int, error) { return v, bytes, nil }
	}
	fails := func() (string, int, error) { return "", 0, errors.New("read twice") }

	t.Run("callers during the read wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s shared[int, string]
			release := make(chan struct{})
			for i := range 10 {
				go func() {
					v, err := s.get(ctx, 1, func() (string, int, error) { <-release; return "read", 1, nil })
					if v != "read" || err != nil {
						t.Errorf("%d got %q, %v", i, v, err)
					}
				}()
			}
			synctest.Wait()
			impatient, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := s.get(impatient, 1, fails); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller whose context ended got %v", err)
			}
			close(release)
			synctest.Wait()
			if s.made != 1 {
				t.Errorf("it was read %d times", s.made)
			}
		})
	})

	t.Run("errors are not shared", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var s shared[int, string]
			release := make(chan struct{})
			go s.get(ctx, 1, func() (string, int, error) { <-release; return "", 0, errors.New("canceled") })
			synctest.Wait()
			go func() {
				if v, err := s.get(ctx, 1, constant("read", 1)); v != "read" || err != nil {
					t.Errorf("a waiting caller got %q, %v", v, err)
				}
			}()
			synctest.Wait()
			close(release)
		})
	})

	t.Run("what is kept has limits", func(t *testing.T) {
		var s shared[int, string]
		for i := range 10 * sharedReads {
			s.get(ctx, i, constant("read", 1))
		}
		if len(s.reads) != sharedReads || len(s.kept) != sharedReads || s.bytes != sharedReads {
			t.Errorf("%d reads are kept, %d of them in line, %d bytes", len(s.reads), len(s.kept), s.bytes)
		}
		if v, err := s.get(ctx, 10*sharedReads-1, fails); v != "read" || err != nil {
			t.Errorf("the newest is not kept: %q, %v", v, err)
		}
		for i := range 100 {
			s.get(ctx, -i, constant("large", sharedBytes/4))
		}
		if s.bytes > sharedBytes || len(s.kept) != 4 {
			t.Errorf("%d bytes are kept, of %d reads", s.bytes, len(s.kept))
		}
		s.get(ctx, -1000, constant("too large", sharedBytes/4+1))
		if s.reads[-1000] != nil || len(s.kept) != 4 {
			t.Error("what is too large is kept")
		}
	})
}
