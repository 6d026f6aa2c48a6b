package keyspace

import (
	"cmp"
	"slices"
	"sync"

	"github.com/leasekeeper/leasekeeper/internal/interval"
)

// Hub passes changes to the watchers of the changed keys. The writing goroutine calls Publish; any goroutine may call
// the other methods.
type Hub struct {
	s *Store
	// hold and release enclose each read of the database for a watcher; see HoldDatabase.
	hold    func() error
	release func()

	mu sync.Mutex // taken before any Stream.mu

	// revision is the revision up to which all changes were passed to the live watchers. It equals s.Revision() or is
	// below it.
	revision Revision
	// Each watcher that is not removed is in exactly one of keys and ranges.
	keys    map[string][]*watcher
	ranges  interval.Tree[[]*watcher]
	count   int
	order   uint64 // of the newest watcher
	streams map[*Stream]struct{}

	touched []*watcher // scratch of Publish: watchers with events of the current change
}

// NewHub returns a hub for the future changes of s. No Writer may be in use during the call.
func NewHub(s *Store) *Hub {
	return &Hub{
		s: s, hold: func() error { return nil }, release: func() {},
		revision: s.Revision(), keys: make(map[string][]*watcher), streams: make(map[*Stream]struct{}),
	}
}

// HoldDatabase makes each read of the database for a watcher begin with hold and end with release, so that the owner of
// the database can close it while watchers exist. Stream.Next returns an error of hold unchanged, and reads nothing then.
// The caller calls HoldDatabase before NewStream.
func (h *Hub) HoldDatabase(hold func() error, release func()) { h.hold, h.release = hold, release }

// Publish passes the changes of a Writer to watchers. The caller calls it after Store.Commit for that Writer, in the
// order of the commits. It never waits: a watcher whose stream has no room reads the rest from the database.
func (h *Hub) Publish(changes Changes) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if h.count > 0 {
			h.collect(c)
			for _, w := range h.touched {
				w.stream.offer(w, c.Revision)
			}
			clear(h.touched)
			h.touched = h.touched[:0]
		}
		h.revision = c.Revision
	}
}

// collect adds the events of a change to the watchers of their keys.
func (h *Hub) collect(c *Change) {
	for i := range c.Events {
		h.visit(string(c.Events[i].KV.Key), func(w *watcher) { h.touch(w, c.Events[i]) })
	}
	if len(c.Ended) > h.count {
		// The lease had many keys, and there are few watchers.
		h.all(func(w *watcher) {
			for _, key := range keysWithin(c.Ended, w.in) {
				if !h.touch(w, deleteEvent([]byte(key), c.Revision)) {
					break
				}
			}
		})
		// The map's order is random, and simulations need the same order every time.
		slices.SortFunc(h.touched, func(a, b *watcher) int { return cmp.Compare(a.order, b.order) })
		return
	}
	for _, key := range c.Ended {
		h.visit(key, func(w *watcher) { h.touch(w, deleteEvent([]byte(key), c.Revision)) })
	}
}

// visit calls f for all watchers of a key.
func (h *Hub) visit(key string, f func(*watcher)) {
	for _, w := range h.keys[key] {
		f(w)
	}
	h.ranges.Visit(key, func(list []*watcher) {
		for _, w := range list {
			f(w)
		}
	})
}

func (h *Hub) all(f func(*watcher)) {
	for _, list := range h.keys {
		for _, w := range list {
			f(w)
		}
	}
	h.ranges.All(func(list []*watcher) {
		for _, w := range list {
			f(w)
		}
	})
}

// touch adds an event of the current change to a watcher. It returns false once the watcher exceeds its limits; offer
// will then find that there is no room for the revision.
func (h *Hub) touch(w *watcher, e Event) bool {
	if !w.live || e.KV.ModRevision < w.next || !w.keeps(e.Type) {
		return true // unwanted, or the watcher reads this revision from the database
	}
	if len(w.fresh) == 0 {
		h.touched = append(h.touched, w)
	}
	limits := &w.stream.limits
	if len(w.fresh) > limits.Events || w.freshBytes > limits.Bytes {
		return false
	}
	w.fresh = append(w.fresh, e)
	w.freshBytes += e.size()
	return true
}

// add registers w. h.mu is held.
func (h *Hub) add(w *watcher) {
	h.count++
	h.order++
	w.order = h.order
	if w.in.single {
		key := string(w.in.key)
		h.keys[key] = enlist(h.keys[key], w)
		return
	}
	list := h.ranges.At(w.in.interval())
	*list = enlist(*list, w)
}

// remove unregisters w. h.mu is held.
func (h *Hub) remove(w *watcher) {
	h.count--
	if !w.in.single {
		list := h.ranges.At(w.in.interval())
		if *list = delist(*list, w); len(*list) == 0 {
			h.ranges.Remove(w.in.interval())
		}
		return
	}
	key := string(w.in.key)
	if h.keys[key] = delist(h.keys[key], w); len(h.keys[key]) == 0 {
		delete(h.keys, key)
	}
}

// enlist appends w to one of the hub's unordered lists. Each watcher is in one list and knows its index, so that
// removing one of tens of thousands is fast.
func enlist(list []*watcher, w *watcher) []*watcher {
	w.at = len(list)
	return append(list, w)
}

// delist removes w from its list.
func delist(list []*watcher, w *watcher) []*watcher {
	last := len(list) - 1
	list[w.at] = list[last]
	list[w.at].at = w.at
	list[last] = nil
	return list[:last]
}

// without removes w from an unordered list.
func without(list []*watcher, w *watcher) []*watcher {
	for i := range list {
		if list[i] == w {
			last := len(list) - 1
			list[i], list[last] = list[last], nil
			return list[:last]
		}
	}
	return list
}
