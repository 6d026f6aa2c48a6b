package node

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// nameHub publishes changes of names to their watchers. It never waits for a watcher: a slow watcher misses changes,
// and learns that it did.
type nameHub struct {
	mu      sync.Mutex
	byLease map[lessor.ID][]*NameWatch
	all     []*NameWatch // watches of a prefix
}

// maxNameChanges bounds the undelivered changes of one watch.
const maxNameChanges = 1024

// A NameWatch collects changes for one watcher until the watcher takes them. The watcher must close it.
type NameWatch struct {
	hub    *nameHub
	prefix string
	wake   chan struct{} // capacity one

	// Guarded by hub.mu.
	leases  map[lessor.ID]int // watched leases, and how often each was added; nil if the watch is of a prefix
	closed  bool
	changes []ownership.Change
	missed  bool
}

// WatchNames watches the names that begin with prefix, from now on.
func (n *Node) WatchNames(prefix string) *NameWatch {
	w := &NameWatch{hub: &n.nameHub, prefix: prefix, wake: make(chan struct{}, 1)}
	n.nameHub.mu.Lock()
	defer n.nameHub.mu.Unlock()
	n.nameHub.all = append(n.nameHub.all, w)
	return w
}

// WatchClaim watches one lease from now on: it reports when the lease gets a name, loses it, or leaves a queue.
func (n *Node) WatchClaim(lease lessor.ID) *NameWatch {
	w := n.WatchClaims(make(chan struct{}, 1))
	w.addLease(lease)
	return w
}

// WatchClaims returns a watch to which [Node.Hold] adds the leases of waiting claims. wake has capacity one; the
// watch sends to it when there are changes to take.
func (n *Node) WatchClaims(wake chan struct{}) *NameWatch {
	return &NameWatch{hub: &n.nameHub, wake: wake, leases: make(map[lessor.ID]int)}
}

// addLease makes the watch collect the changes of the name that this lease claims.
func (w *NameWatch) addLease(lease lessor.ID) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.closed {
		return
	}
	if w.leases[lease]++; w.leases[lease] > 1 {
		return
	}
	if w.hub.byLease == nil {
		w.hub.byLease = make(map[lessor.ID][]*NameWatch)
	}
	w.hub.byLease[lease] = append(w.hub.byLease[lease], w)
}

// Drop removes a lease from the watch, unless it was added more often than dropped.
func (w *NameWatch) Drop(lease lessor.ID) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.leases[lease]--; w.leases[lease] <= 0 {
		w.remove(lease)
	}
}

func (w *NameWatch) remove(lease lessor.ID) {
	delete(w.leases, lease)
	is := func(other *NameWatch) bool { return other == w }
	if left := slices.DeleteFunc(w.hub.byLease[lease], is); len(left) > 0 {
		w.hub.byLease[lease] = left
	} else {
		delete(w.hub.byLease, lease)
	}
}

// Close ends the watch.
func (w *NameWatch) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	w.closed = true
	if w.leases == nil {
		w.hub.all = slices.DeleteFunc(w.hub.all, func(other *NameWatch) bool { return other == w })
		return
	}
	for lease := range w.leases { // order: each lease is removed by itself
		w.remove(lease)
	}
}

// Next waits for changes and returns them in order. If missed is set, earlier changes were dropped, and the watcher
// must read everything again.
func (w *NameWatch) Next(ctx context.Context) (changes []ownership.Change, missed bool, err error) {
	for {
		if changes, missed = w.Take(); len(changes) > 0 || missed {
			return changes, missed, nil
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// Take returns the pending changes, as Next does, but does not wait for any.
func (w *NameWatch) Take() (changes []ownership.Change, missed bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	changes, missed = w.changes, w.missed
	w.changes, w.missed = nil, false
	return changes, missed
}

// publish adds changes to the watches. The member's goroutine calls it after readers can see the changes.
func (h *nameHub) publish(changes []ownership.Change) {
	if len(changes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if c.Kind == ownership.Acquired {
			h.offerClaim(c.State.Lease, c)
		}
		if c.Lease != lessor.NoLease {
			h.offerClaim(c.Lease, c)
		}
		if c.Kind == ownership.WaitEnded {
			continue
		}
		for _, w := range h.all {
			if strings.HasPrefix(c.State.Name, w.prefix) {
				w.offer(c)
			}
		}
	}
}

func (h *nameHub) offerClaim(lease lessor.ID, c *ownership.Change) {
	for _, w := range h.byLease[lease] {
		w.offer(c)
	}
}

func (w *NameWatch) offer(c *ownership.Change) {
	if len(w.changes) >= maxNameChanges {
		w.changes, w.missed = nil, true
	}
	w.changes = append(w.changes, *c)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
