package keyspace

import (
	"context"
	"slices"
	"sync"
	"testing"
)

// line has callers wait in an order that is known, and notes the order of their turns.
type line struct {
	t     *testing.T
	turns *Turns
	done  sync.WaitGroup
	mu    sync.Mutex
	order []string
}

func (l *line) waiting() int {
	l.turns.mu.Lock()
	defer l.turns.mu.Unlock()
	n := 0
	for _, c := range l.turns.clients {
		n += len(c.waiting)
	}
	return n
}

func (l *line) wait(ctx context.Context, name string) {
	before := l.waiting()
	l.done.Go(func() {
		if l.turns.take(ctx, name) != nil {
			return
		}
		l.mu.Lock()
		l.order = append(l.order, name)
		l.mu.Unlock()
		l.turns.give()
	})
	for l.waiting() == before {
		if l.t.Context().Err() != nil {
			return
		}
	}
}

// A client with many streams has as many turns as one with a single stream, while both wait.
func TestBulkWorkTakesTurnsByClient(t *testing.T) {
	l := &line{t: t, turns: NewTurns(1)}
	if err := l.turns.take(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		l.wait(t.Context(), "flood")
	}
	l.wait(t.Context(), "honest")
	l.wait(t.Context(), "honest")
	l.turns.give()
	l.done.Wait()
	if want := []string{"flood", "honest", "flood", "honest", "flood", "flood", "flood"}; !slices.Equal(l.order, want) {
		t.Errorf("turns went to %v, want %v", l.order, want)
	}
	if l.turns.free != 1 || len(l.turns.byName) > 0 || len(l.turns.clients) > 0 {
		t.Errorf("left behind: %d free, %d clients", l.turns.free, len(l.turns.byName))
	}
}

// A caller that does not wait any longer leaves its turn to the next.
func TestBulkWorkWithdrawn(t *testing.T) {
	l := &line{t: t, turns: NewTurns(1)}
	if err := l.turns.take(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	l.wait(gone, "gone")
	l.wait(t.Context(), "stays")
	leave()
	for l.waiting() > 1 {
		if t.Context().Err() != nil {
			t.Fatal("nobody leaves")
		}
	}
	l.turns.give()
	l.done.Wait()
	if !slices.Equal(l.order, []string{"stays"}) || l.turns.free != 1 || len(l.turns.byName) > 0 {
		t.Errorf("turns went to %v, and %d are free", l.order, l.turns.free)
	}
}

// No more than so many do bulk work at a time, however many want to.
func TestBulkWorkIsBounded(t *testing.T) {
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
				if err := turns.take(t.Context(), string(rune('a'+i%3))); err != nil {
					t.Error(err)
					return
				}
				count(1)
				count(-1)
				turns.give()
			}
		})
	}
	work.Wait()
	if most > 2 || turns.free != 2 {
		t.Errorf("%d worked at once, and %d turns are free", most, turns.free)
	}
}
