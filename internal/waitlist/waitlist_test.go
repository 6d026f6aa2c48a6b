package waitlist

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var terms = Terms{TTL: time.Second}

// model is what the lists of one name should be: a slice and two facts.
type model struct {
	lists   Lists[int]
	waiting []*Waiter[int] // by priority, then in the order in which they joined
	actors  map[*Waiter[int]]bool
	places  map[*Waiter[int]]bool
	taken   int
	joined  int
}

// TestLists compares the lists with a model that scans a slice.
func TestLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{actors: make(map[*Waiter[int]]bool), places: make(map[*Waiter[int]]bool)}
		t.Repeat(map[string]func(*rapid.T){"join": m.join, "leave": m.leave, "placed": m.placed, "take": m.take, "free": m.free, "": m.compare})
	})
}

// appoint returns the waiter that becomes the actor now, or nil.
func (m *model) appoint() *Waiter[int] {
	for i, w := range m.waiting {
		first := i == 0 || m.waiting[i-1].Terms().Priority != w.Terms().Priority
		switch {
		case m.taken > 0 || m.actors[w] && !m.places[w]:
			return nil
		case first && !m.actors[w]:
			m.actors[w] = true
			return w
		}
	}
	return nil
}

func (m *model) join(t *rapid.T) {
	m.joined++
	terms := Terms{TTL: time.Duration(rapid.IntRange(1, 2).Draw(t, "TTL")), Priority: rapid.IntRange(-1, 1).Draw(t, "priority")}
	w, acts := m.lists.Join("n", terms, m.joined)
	m.waiting = append(m.waiting, w)
	slices.SortStableFunc(m.waiting, func(a, b *Waiter[int]) int { return b.Terms().Priority - a.Terms().Priority })
	if want := m.appoint() == w; acts != want {
		t.Fatalf("it acts: %v, want %v", acts, want)
	}
}

func (m *model) leave(t *rapid.T) {
	if len(m.waiting) == 0 {
		t.Skip("no waiter is there")
	}
	i := rapid.IntRange(0, len(m.waiting)-1).Draw(t, "who")
	hasPlace := rapid.Bool().Draw(t, "has a place")
	w := m.waiting[i]
	acted := m.actors[w]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	var want *Waiter[int]
	inherited := false
	if acted {
		delete(m.actors, w)
		if inherited = hasPlace && i < len(m.waiting) && m.waiting[i].Terms() == w.Terms(); inherited {
			want = m.waiting[i]
			m.actors[want], m.places[want] = true, m.places[w]
		}
	}
	if !inherited {
		want = m.appoint()
	}
	if actor, inherits := m.lists.Leave(w, hasPlace); actor != want || inherits != inherited {
		t.Fatalf("%v acts and inherits a place: %v; want %v and %v", actor, inherits, want, inherited)
	}
}

func (m *model) placed(t *rapid.T) {
	if len(m.waiting) == 0 {
		t.Skip("no waiter is there")
	}
	w := m.waiting[rapid.IntRange(0, len(m.waiting)-1).Draw(t, "who")]
	if !m.actors[w] {
		t.Skip("it does not act")
	}
	m.places[w] = true
	if actor, want := m.lists.Placed(w), m.appoint(); actor != want {
		t.Fatalf("%v acts, want %v", actor, want)
	}
}

func (m *model) take(*rapid.T) {
	m.taken++
	m.lists.Take("n")
}

func (m *model) free(t *rapid.T) {
	if m.taken == 0 {
		t.Skip("the name is not taken")
	}
	m.taken--
	if actor, want := m.lists.Free("n"), m.appoint(); actor != want {
		t.Fatalf("%v acts, want %v", actor, want)
	}
}

func (m *model) compare(t *rapid.T) {
	for i, w := range m.waiting {
		if m.lists.Acts(w) != m.actors[w] {
			t.Fatalf("waiter %d acts: %v", w.Value, m.lists.Acts(w))
		}
		if m.actors[w] && i > 0 && m.waiting[i-1].Terms().Priority == w.Terms().Priority {
			t.Fatalf("waiter %d acts, and is not the first of its priority", w.Value)
		}
	}
	if m.taken == 0 && len(m.waiting) > 0 && !m.actors[m.waiting[0]] {
		t.Fatal("the name is free, and the first waiter does not act")
	}
	if n := m.lists.Len("n"); n != len(m.waiting) {
		t.Fatalf("%d wait, not %d", len(m.waiting), n)
	}
	var want *Waiter[int]
	if i := slices.IndexFunc(m.waiting, func(w *Waiter[int]) bool { return !m.actors[w] }); i >= 0 {
		want = m.waiting[i]
	}
	if next := m.lists.Next("n"); next != want {
		t.Fatalf("the next is %v, want %v", next, want)
	}
	if len(m.waiting) == 0 && m.taken == 0 && len(m.lists.byName) > 0 {
		t.Fatalf("an empty list is kept: %v", m.lists.byName)
	}
}

// Waiters of one name and of another do not know each other.
func TestNamesHaveListsOfTheirOwn(t *testing.T) {
	var lists Lists[string]
	lists.Take("a")
	first, acts := lists.Join("a", terms, "first of a")
	if acts {
		t.Error("a waiter acts while the keeper holds its name")
	}
	if _, acts := lists.Join("b", terms, "first of b"); !acts {
		t.Error("the only waiter of b does not act")
	}
	if actor := lists.Free("a"); actor != first {
		t.Errorf("%v acts after a was freed", actor)
	}
}

// Joining and leaving costs one object: the waiter.
func TestLoneWaiterCostsOneObject(t *testing.T) {
	var lists Lists[int]
	n := testing.AllocsPerRun(100, func() {
		w, _ := lists.Join("n", terms, 1)
		lists.Take("n")
		lists.Leave(w, false)
		lists.Free("n")
	})
	if n != 1 {
		t.Errorf("%v objects", n)
	}
}
