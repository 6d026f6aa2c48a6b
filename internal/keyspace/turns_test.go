package keyspace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
)

// turnOrder makes callers wait in a known order, and records the order of their turns.
type turnOrder struct {
	t     *testing.T
	turns *Turns
	done  sync.WaitGroup
	mu    sync.Mutex
	order []string
}

func (l *turnOrder) waiting() int {
	l.turns.mu.Lock()
	defer l.turns.mu.Unlock()
	n := 0
	for _, c := range l.turns.clients {
		n += len(c.waiting)
	}
	return n
}

func (l *turnOrder) wait(ctx context.Context, name string) {
	before := l.waiting()
	l.done.Go(func() {
		if l.turns.acquire(ctx, name) != nil {
			return
		}
		l.mu.Lock()
		l.order = append(l.order, name)
		l.mu.Unlock()
		l.turns.release()
	})
	for l.waiting() == before {
		if l.t.Context().Err() != nil {
			return
		}
	}
}

// While both wait, a client with many streams gets as many turns as a client with one.
func TestBulkWorkTakesTurnsByClient(t *testing.T) {
	l := &turnOrder{t: t, turns: NewTurns(1)}
	if err := l.turns.acquire(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		l.wait(t.Context(), "flood")
	}
	l.wait(t.Context(), "honest")
	l.wait(t.Context(), "honest")
	l.turns.release()
	l.done.Wait()
	if want := []string{"flood", "honest", "flood", "honest", "flood", "flood", "flood"}; !slices.Equal(l.order, want) {
		t.Errorf("turns went to %v, want %v", l.order, want)
	}
	if l.turns.free != 1 || len(l.turns.byName) > 0 || len(l.turns.clients) > 0 {
		t.Errorf("left behind: %d free, %d clients", l.turns.free, len(l.turns.byName))
	}
}

// A caller whose context ends leaves its turn to the next caller.
func TestCancelledWaiterYieldsItsTurn(t *testing.T) {
	l := &turnOrder{t: t, turns: NewTurns(1)}
	if err := l.turns.acquire(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	l.wait(gone, "gone")
	l.wait(t.Context(), "stays")
	leave()
	for l.waiting() > 1 {
		if t.Context().Err() != nil {
			t.Fatal("the caller is not withdrawn")
		}
	}
	l.turns.release()
	l.done.Wait()
	if !slices.Equal(l.order, []string{"stays"}) || l.turns.free != 1 || len(l.turns.byName) > 0 {
		t.Errorf("turns went to %v, and %d are free", l.order, l.turns.free)
	}
}

// At most the configured number of callers do bulk work at a time.
func TestConcurrentBulkWorkIsBounded(t *testing.T) {
	turns := NewTurns(2)
	var mu sync.Mutex
	var work sync.WaitGroup
	under, most := 0, 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		under += by
		most = max(most, under)
	}
	for i := range 16 {
		work.Go(func() {
			for range 200 {
				if err := turns.acquire(t.Context(), string(rune('a'+i%3))); err != nil {
					t.Error(err)
					return
				}
				count(1)
				count(-1)
				turns.release()
			}
		})
	}
	work.Wait()
	if most > 2 || turns.free != 2 {
		t.Errorf("%d worked at once, and %d turns are free", most, turns.free)
	}
}

// TestLongReadsTakeSeveralTurns makes another client wait during a range, a transaction with a range, and a read of
// history, each of several turns.
func TestLongReadsTakeSeveralTurns(t *testing.T) {
	h := newFixture(t)
	value := make([]byte, turnBytes/4)
	for i := range 16 {
		h.write(func(w *Writer) {
			if _, err := w.Put(PutRequest{Key: fmt.Appendf(nil, "k%02d", i), Value: value}); err != nil {
				t.Error(err)
			}
		})
	}
	all := RangeRequest{Key: []byte("k"), End: []byte("l")}
	hub := NewHub(h.store)
	for name, read := range map[string]func(context.Context) error{ // order: each read is tested by itself
		"range": func(ctx context.Context) error {
			endTurn, err := TakeTurn(ctx)
			if err != nil {
				return err
			}
			defer endTurn()
			_, err = h.store.Range(ctx, all)
			return err
		},
		"transaction": func(ctx context.Context) error {
			endTurn, err := TakeTurn(ctx)
			if err != nil {
				return err
			}
			defer endTurn()
			_, err = h.store.Txn(ctx, TxnRequest{Success: []TxnOp{all}})
			return err
		},
		"history": func(ctx context.Context) error {
			st := hub.NewStream(StreamLimits{})
			defer st.Close()
			if _, err := st.Watch(WatchRequest{Key: all.Key, End: all.End, StartRevision: 2}); err != nil {
				return err
			}
			w := st.watchers[0]
			_, err := h.store.pastOf(ctx, w, w.next, portion{events: 100, bytes: 100 * len(value), scanned: 100})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &turnOrder{t: t, turns: NewTurns(1)}
			if err := l.turns.acquire(t.Context(), "first"); err != nil {
				t.Fatal(err)
			}
			l.done.Go(func() {
				if err := read(InTurn(t.Context(), l.turns, "long")); err != nil {
					t.Error(err)
				}
				l.mu.Lock()
				defer l.mu.Unlock()
				l.order = append(l.order, "long")
			})
			for l.waiting() == 0 {
				if t.Context().Err() != nil {
					t.Fatal("the long read does not wait")
				}
			}
			l.wait(t.Context(), "short")
			l.turns.release()
			l.done.Wait()
			if want := []string{"short", "long"}; !slices.Equal(l.order, want) {
				t.Errorf("they end in the order %v, want %v", l.order, want)
			}
			if l.turns.free != 1 {
				t.Errorf("%d turns are free", l.turns.free)
			}
		})
	}
}
