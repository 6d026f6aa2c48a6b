package keyspace

import (
	"cmp"
	"slices"
	"sync"
)

// Hub hands changes to the watchers they concern. Publish is called by the
// writing goroutine, everything else may be called from any.
type Hub struct {
	s *Store

	mu sync.Mutex // taken before any Stream.mu

	// revision is up to where all changes were handed to the live watchers;
	// ≤ s.Revision() whenever Publish isn't due.
	revision Revision
	// A watcher is in exactly one of keys and ranges until it is gone, live
	// or not.
	keys    map[string][]*watcher
	ranges  intervals
	count   int
	order   uint64 // of the newest watcher
	streams map[*Stream]struct{}

	touched []*watcher // scratch of Publish: those with events at the revision
}

// NewHub returns a hub for the changes that s is yet to see. It is called
// while no Writer is in use.
func NewHub(s *Store) *Hub {
	return &Hub{s: s, revision: s.Revision(), keys: make(map[string][]*watcher), streams: make(map[*Stream]struct{})}
}

// Publish hands on the changes of a Writer. It is called after Store.Commit
// for that Writer, in the order of the commits. It doesn't wait for anyone:
// a watcher whose stream has no room will read the rest from the database.
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

// collect gathers in the watchers the events of a change.
func (h *Hub) collect(c *Change) {
	for i := range c.Events {
		h.visit(string(c.Events[i].KV.Key), func(w *watcher) { h.touch(w, c.Events[i]) })
	}
	if len(c.Ended) > h.count {
		// A lease with many keys and few who watch.
		h.all(func(w *watcher) {
			for _, key := range keysWithin(c.Ended, w.in) {
				if !h.touch(w, deleteEvent([]byte(key), c.Revision)) {
					break
				}
			}
		})
		// Found by way of a map; simulations want the same order every time.
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
	h.ranges.root.visit(key, f)
}

func (h *Hub) all(f func(*watcher)) {
	for _, list := range h.keys {
		for _, w := range list {
			f(w)
		}
	}
	h.ranges.root.all(f)
}

func (n *interval) all(f func(*watcher)) {
	if n == nil {
		return
	}
	n.left.all(f)
	for _, w := range n.watchers {
		f(w)
	}
	n.right.all(f)
}

// touch adds an event of the revision being published to a watcher. It
// returns false once the watcher can take no more: offer will then find that
// there is no room for the revision.
func (h *Hub) touch(w *watcher, e Event) bool {
	if !w.live || e.KV.ModRevision < w.next || !w.keeps(e.Type) {
		return true // not wanted, or it reads this revision from the database
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

// add makes w known. h.mu is held.
func (h *Hub) add(w *watcher) {
	h.count++
	h.order++
	w.order = h.order
	if w.in.single {
		key := string(w.in.key)
		h.keys[key] = enlist(h.keys[key], w)
		return
	}
	h.ranges.add(w)
}

// remove forgets w. h.mu is held.
func (h *Hub) remove(w *watcher) {
	h.count--
	if !w.in.single {
		h.ranges.remove(w)
		return
	}
	key := string(w.in.key)
	if h.keys[key] = delist(h.keys[key], w); len(h.keys[key]) == 0 {
		delete(h.keys, key)
	}
}
