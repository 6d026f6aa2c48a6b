package waitlist

import (
	"slices"
	"time"
)

// Terms are what a place at the store was claimed with.
type Terms struct {
	TTL      time.Duration
	Card     string
	Priority int
}

// A Waiter is a caller that wants a name. Value belongs to the driver.
type Waiter[V any] struct {
	Value      V
	terms      Terms
	acts       bool     // then it is the first of its level
	placed     bool     // it acts, and has a place in the store's queue
	list       *list[V] // nil if it has left
	prev, next *Waiter[V]
}

// Terms returns the terms with which the waiter joined.
func (w *Waiter[V]) Terms() Terms { return w.terms }

// Lists has the waiters of all names. The zero value is empty and ready to use.
type Lists[V any] struct {
	byName map[string]*list[V] // no list is empty and untaken
	spare  *list[V]            // an empty list that is used again; nil if there is none
}

// list has the waiters of one name.
type list[V any] struct {
	name    string
	levels  []level[V] // the highest priority first; none is empty
	waiting int        // number of waiters
	taken   int        // leases of the keeper that hold the name or are being released
}

// level has the waiters of one priority, in the order in which they joined.
type level[V any] struct{ first, last *Waiter[V] }

// Join adds a waiter to the list of a name, behind those of the same priority. It reports whether the waiter acts.
func (s *Lists[V]) Join(name string, t Terms, v V) (w *Waiter[V], acts bool) {
	l := s.of(name)
	w = &Waiter[V]{Value: v, terms: t, list: l}
	at := l.level(t.Priority)
	if w.prev = at.last; w.prev == nil {
		at.first = w
	} else {
		w.prev.next = w
	}
	at.last = w
	l.waiting++
	return w, l.appoint() == w
}

// Placed notes that an actor has a place in the store's queue. It returns the waiter of a lower priority that has become
// an actor by this, or nil.
func (s *Lists[V]) Placed(w *Waiter[V]) (actor *Waiter[V]) {
	w.placed = true
	return w.list.appoint()
}

// Leave removes a waiter: it has the name, or no longer wants it. If w was an actor, hasPlace says whether it leaves a
// place behind. Leave returns the waiter that has become an actor by this, or nil, and whether that one inherits the place.
func (s *Lists[V]) Leave(w *Waiter[V], hasPlace bool) (actor *Waiter[V], inherits bool) {
	l, next := w.list, w.next
	acted, placed := w.acts, w.placed
	l.remove(w)
	if acted && hasPlace && next != nil && next.terms == w.terms {
		next.acts, next.placed = true, placed
		return next, true
	}
	actor = l.appoint()
	s.drop(l)
	return actor, false
}

// Acts reports whether the waiter is an actor.
func (s *Lists[V]) Acts(w *Waiter[V]) bool { return w.acts }

// Len returns the number of waiters of a name.
func (s *Lists[V]) Len(name string) int {
	if l := s.byName[name]; l != nil {
		return l.waiting
	}
	return 0
}

// Next returns the first waiter of a name that does not act, or nil.
func (s *Lists[V]) Next(name string) *Waiter[V] {
	if l := s.byName[name]; l != nil {
		for _, at := range l.levels {
			if !at.first.acts {
				return at.first
			}
			if at.first.next != nil {
				return at.first.next
			}
		}
	}
	return nil
}

// Take notes that a lease of the keeper holds the name.
func (s *Lists[V]) Take(name string) { s.of(name).taken++ }

// Free notes that a lease for which [Lists.Take] was called no longer holds the name. It returns the waiter that has become
// an actor by this, or nil.
func (s *Lists[V]) Free(name string) (actor *Waiter[V]) {
	l := s.byName[name]
	l.taken--
	actor = l.appoint()
	s.drop(l)
	return actor
}

// of returns the list of a name, and makes one if there is none.
func (s *Lists[V]) of(name string) *list[V] {
	l := s.byName[name]
	if l != nil {
		return l
	}
	if l, s.spare = s.spare, nil; l == nil {
		l = new(list[V])
	}
	if s.byName == nil {
		s.byName = make(map[string]*list[V])
	}
	l.name = name
	s.byName[name] = l
	return l
}

// drop forgets a list that holds nothing.
func (s *Lists[V]) drop(l *list[V]) {
	if l.waiting == 0 && l.taken == 0 {
		delete(s.byName, l.name)
		*l = list[V]{levels: l.levels[:0]}
		s.spare = l
	}
}

// level returns the level of a priority, and makes it if there is none.
func (l *list[V]) level(priority int) *level[V] {
	i := 0
	for i < len(l.levels) && l.levels[i].first.terms.Priority > priority {
		i++
	}
	if i == len(l.levels) || l.levels[i].first.terms.Priority < priority {
		l.levels = slices.Insert(l.levels, i, level[V]{})
	}
	return &l.levels[i]
}

// appoint makes the first waiter of a level an actor if it must be one and is none, and returns it; otherwise nil. There is
// at most one such waiter, because the actors of higher priorities must have their places first.
func (l *list[V]) appoint() *Waiter[V] {
	if l.taken > 0 {
		return nil
	}
	for _, at := range l.levels {
		switch {
		case !at.first.acts:
			at.first.acts = true
			return at.first
		case !at.first.placed:
			return nil
		}
	}
	return nil
}

func (l *list[V]) remove(w *Waiter[V]) {
	at := l.level(w.terms.Priority)
	if w.prev == nil {
		at.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		at.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	if at.first == nil {
		l.levels = slices.DeleteFunc(l.levels, func(at level[V]) bool { return at.first == nil })
	}
	w.list, w.prev, w.next, w.acts, w.placed = nil, nil, nil, false, false
	l.waiting--
}
