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
	waiting []*Waiter[int] // in the order in which they joined
	actor   *Waiter[int]
	taken   int
	joined  int
}

// TestLists compares the lists with a model that scans a slice.
func TestLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := new(model)
		t.Repeat(map[string]func(*rapid.T){"join": m.join, "leave": m.leave, "take": m.take, "free": m.free, "": m.compare})
	})
}

// appoint returns the waiter that becomes the actor now, or nil.
func (m *model) appoint() *Waiter[int] {
	if m.actor != nil || m.taken > 0 || len(m.waiting) == 0 {
		return nil
	}
	m.actor = m.waiting[0]
	return m.actor
}

func (m *model) join(t *rapid.T) {
	m.joined++
	w, acts := m.lists.Join("n", Terms{TTL: time.Duration(rapid.IntRange(1, 2).Draw(t, "TTL"))}, m.joined)
	m.waiting = append(m.waiting, w)
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
	acted := m.actor == w
	m.waiting = slices.Delete(m.waiting, i, i+1)
	var want *Waiter[int]
	inherited := false
	if acted {
		m.actor = nil
		if inherited = hasPlace && len(m.waiting) > 0 && m.waiting[0].Terms() == w.Terms(); inherited {
			m.actor, want = m.waiting[0], m.waiting[0]
		}
	}
	if !inherited {
		want = m.appoint()
	}
	if actor, inherits := m.lists.Leave(w, hasPlace); actor != want || inherits != inherited {
		t.Fatalf("%v acts and inherits a place: %v; want %v and %v", actor, inherits, want, inherited)
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
		if m.lists.Acts(w) != (w == m.actor) {
			t.Fatalf("waiter %d acts: %v", w.Value, m.lists.Acts(w))
		}
		if w == m.actor && i != 0 {
			t.Fatalf("waiter %d acts, and is not the first", w.Value)
		}
	}
	if m.actor == nil && m.taken == 0 && len(m.waiting) > 0 {
		t.Fatal("the name is free, and no waiter acts")
	}
	if n := m.lists.Len("n"); n != len(m.waiting) {
		t.Fatalf("%d wait, not %d", len(m.waiting), n)
	}
	var want *Waiter[int]
	if i := slices.IndexFunc(m.waiting, func(w *Waiter[int]) bool { return w != m.actor }); i >= 0 {
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
