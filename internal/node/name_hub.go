package node

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/leasekeeper/leasekeeper/internal/ownership"
	"github.com/leasekeeper/leasekeeper/lessor"
)

// nameHub hands changes of names to those who watch. It waits for nobody: who is too slow misses changes,
// and is told that.
type nameHub struct {
	mu      sync.Mutex
	byLease map[lessor.ID][]*NameWatch
	all     []*NameWatch // by prefix
}

// maxNameChanges is how many changes wait for one watcher.
const maxNameChanges = 1024

// A NameWatch gathers changes for one watcher until it takes them. It must be closed.
type NameWatch struct {
	hub    *nameHub
	prefix string
	wake   chan struct{} // holds one

	// Guarded by hub.mu.
	leases  map[lessor.ID]int // that are watched, and how often each was added; nil: the prefix counts
	closed  bool
	changes []ownership.Change
	missed  bool
}

// WatchNames tells of changes of the names that begin with prefix, from now on.
func (n *Node) WatchNames(prefix string) *NameWatch {
	w := &NameWatch{hub: &n.nameHub, prefix: prefix, wake: make(chan struct{}, 1)}
	n.nameHub.mu.Lock()
	defer n.nameHub.mu.Unlock()
	n.nameHub.all = append(n.nameHub.all, w)
	return w
}

// WatchClaim tells, from now on, that a lease gets a name, loses it, or no longer stands in line.
func (n *Node) WatchClaim(lease lessor.ID) *NameWatch {
	w := n.WatchClaims(make(chan struct{}, 1))
	w.add(lease)
	return w
}

// WatchClaims is WatchClaim for many leases, those of the claims that are handed to [Node.Hold] with it and
// stand in line. wake, which has room for one, is told when there is something to take.
func (n *Node) WatchClaims(wake chan struct{}) *NameWatch {
	return &NameWatch{hub: &n.nameHub, wake: wake, leases: make(map[lessor.ID]int)}
}

// add has the watch tell of one more lease.
func (w *NameWatch) add(lease lessor.ID) {
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

// Drop has the watch tell no more of a lease, unless it was added once more.
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
	for lease := range w.leases { // order: each by itself
		w.remove(lease)
	}
}

// Next waits for changes and returns them in order. If missed is set there were more before them than could
// be kept, and the watcher must look at everything again.
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

// Take returns what Next would, and nothing instead of waiting.
func (w *NameWatch) Take() (changes []ownership.Change, missed bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	changes, missed = w.changes, w.missed
	w.changes, w.missed = nil, false
	return changes, missed
}

// publish is called by the member's goroutine, after readers can see the changes.
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
