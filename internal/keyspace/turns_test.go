package keyspace

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"runtime"
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

// turnsTaken returns how many turns a read takes while another client always waits for the next one.
func turnsTaken(t *testing.T, read func(context.Context) error) (n int) {
	t.Helper()
	turns := NewTurns(1)
	queued := func(client string) bool {
		turns.mu.Lock()
		defer turns.mu.Unlock()
		return turns.byName[client] != nil
	}
	if err := turns.acquire(t.Context(), "rival"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- read(InTurn(t.Context(), turns, "reader")) }()
	for {
		for !queued("reader") {
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				return n
			default:
				runtime.Gosched()
			}
		}
		n++
		next := make(chan error, 1)
		go func() { next <- turns.acquire(t.Context(), "rival") }()
		for !queued("rival") {
			runtime.Gosched()
		}
		turns.release() // to the reader
		if err := <-next; err != nil {
			t.Fatal(err)
		}
	}
}

// A turn covers at most 1 MiB of keys and values and the item at its end, and at most 4 096 small keys, see P37
// (docs/guarantees.md).
func TestTurnIsBoundedInBytesAndKeys(t *testing.T) {
	const turn, most = 1 << 20, 4096
	for name, data := range map[string]struct {
		keys, key, value int // how many, and their sizes in bytes
	}{
		"large values": {32, 2, 256 << 10},
		"long keys":    {64, 64 << 10, 0},
		"small keys":   {3 * most, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			item := data.key + data.value
			least := max(data.keys*item/(turn+item), data.keys/most) // turns for all keys with their values
			leastOfKeys := max(data.keys*data.key/(turn+data.key), data.keys/most)
			h := newFixture(t)
			h.grant(1)
			put := func(lease int64) {
				h.write(func(w *Writer) {
					for i := range data.keys {
						key := append(bytes.Repeat([]byte("k"), data.key), fmt.Sprintf("%06d", i)...)
						if _, err := w.Put(PutRequest{Key: key, Value: make([]byte, data.value), Lease: lease}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			inTurn := func(what string, least int, read func(context.Context) error) {
				n := turnsTaken(t, func(ctx context.Context) error {
					end, err := TakeTurn(ctx)
					if err != nil {
						return err
					}
					defer end()
					return read(ctx)
				})
				if n < least {
					t.Errorf("%s took %d turns, want at least %d", what, n, least)
				}
			}
			scan := func(what string, least int, r RangeRequest) {
				r.Key, r.End = []byte{0}, []byte{0}
				inTurn(what, least, func(ctx context.Context) error { _, err := h.store.Range(ctx, r); return err })
			}
			history := func(what string, least int, from Revision, wanted EventType) {
				all := portion{events: math.MaxInt, bytes: math.MaxInt, scanned: math.MaxInt}
				inTurn(what, least, func(ctx context.Context) error {
					_, err := h.store.history(ctx, spanOf([]byte{0}, []byte{0}), from, func(kind EventType) bool { return kind == wanted }, all)
					return err
				})
			}

			put(0)
			scan("a range", least, RangeRequest{})
			scan("a range of keys alone", leastOfKeys, RangeRequest{KeysOnly: true})
			scan("a count", leastOfKeys, RangeRequest{CountOnly: true})
			scan("a range of keys that did not exist yet", leastOfKeys, RangeRequest{Revision: 1})
			history("a history of puts", least, 1, EventPut)
			inTurn("a hash of the keys", least, func(ctx context.Context) error { _, err := h.store.HashKeys(ctx, 0); return err })
			inTurn("a hash of the history", least, func(ctx context.Context) error { _, err := h.store.Hash(ctx); return err })
			deleted := h.store.Revision() + 1
			h.write(func(w *Writer) {
				if _, err := w.DeleteRange(DeleteRequest{Key: []byte{0}, End: []byte{0}}); err != nil {
					t.Error(err)
				}
			})
			scan("a range of deleted keys", leastOfKeys, RangeRequest{})
			history("a history of deletes", leastOfKeys, deleted, EventDelete)
			put(1)
			ended := h.store.Revision() + 1
			h.write(func(w *Writer) { h.end(w, 1) })
			history("a history of the end of a lease", leastOfKeys, ended, EventDelete)
		})
	}
}
