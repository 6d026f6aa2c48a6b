package waitlist

import "time"

// Terms are what a place at the store was claimed with.
type Terms struct {
	TTL  time.Duration
	Card string
}

// A Waiter is a caller that wants a name. Value belongs to the driver.
type Waiter[V any] struct {
	Value      V
	terms      Terms
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

// list has the waiters of one name, in the order in which they joined.
type list[V any] struct {
	name        string
	first, last *Waiter[V]
	actor       *Waiter[V] // nil if no waiter acts; otherwise always first
	waiting     int        // number of waiters
	taken       int        // leases of the keeper that hold the name or are being released
}

// Join adds a waiter at the end of the list of a name. It reports whether the waiter is the actor.
func (s *Lists[V]) Join(name string, t Terms, v V) (w *Waiter[V], acts bool) {
	l := s.of(name)
	w = &Waiter[V]{Value: v, terms: t, list: l, prev: l.last}
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
	l.waiting++
	return w, l.appoint() == w
}

// Leave removes a waiter: it has the name, or no longer wants it. If w was the actor, hasPlace says whether it leaves a
// place behind. Leave returns the waiter that has become the actor by this, or nil, and whether that one inherits the place.
func (s *Lists[V]) Leave(w *Waiter[V], hasPlace bool) (actor *Waiter[V], inherits bool) {
	l := w.list
	acted := l.actor == w
	l.remove(w)
	if acted {
		l.actor = nil
		if inherits = hasPlace && l.first != nil && l.first.terms == w.terms; inherits {
			l.actor = l.first
			return l.actor, true
		}
	}
	actor = l.appoint()
	s.drop(l)
	return actor, false
}

// Acts reports whether the waiter is the actor.
func (s *Lists[V]) Acts(w *Waiter[V]) bool { return w.list != nil && w.list.actor == w }

// Len returns the number of waiters of a name.
func (s *Lists[V]) Len(name string) int {
	if l := s.byName[name]; l != nil {
		return l.waiting
	}
	return 0
}

// Next returns the first waiter of a name that is not the actor, or nil.
func (s *Lists[V]) Next(name string) *Waiter[V] {
	l := s.byName[name]
	switch {
	case l == nil:
		return nil
	case l.first != nil && l.first == l.actor:
		return l.first.next
	}
	return l.first
}

// Take notes that a lease of the keeper holds the name.
func (s *Lists[V]) Take(name string) { s.of(name).taken++ }

// Free notes that a lease for which [Lists.Take] was called no longer holds the name. It returns the waiter that has become
// the actor by this, or nil.
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
	if l.first == nil && l.taken == 0 {
		delete(s.byName, l.name)
		*l = list[V]{}
		s.spare = l
	}
}

// appoint makes the first waiter the actor if there must be one and is none. It returns the actor if it has just become
// that, or nil.
func (l *list[V]) appoint() *Waiter[V] {
	if l.actor != nil || l.taken > 0 {
		return nil
	}
	l.actor = l.first
	return l.actor
}

func (l *list[V]) remove(w *Waiter[V]) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
	l.waiting--
}
