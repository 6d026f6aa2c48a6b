package replica

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/leasekeeper/leasekeeper/lessor"
)

// namesHub hands changes of names to those who watch. It waits for nobody: who is too slow misses changes,
// and is told that.
type namesHub struct {
	mu      sync.Mutex
	byLease map[lessor.ID][]*NameWatch
	all     []*NameWatch // by prefix
}

// maxNameChanges is how many changes wait for one watcher.
const maxNameChanges = 1024

// A NameWatch gathers changes for one watcher until it takes them. It must be closed.
type NameWatch struct {
	hub    *namesHub
	prefix string
	lease  lessor.ID // 0: the prefix counts

	wake    chan struct{} // holds one
	changes []NameChange  // guarded by hub.mu, as is missed
	missed  bool
}

// WatchNames tells of changes of the names that begin with prefix, from now on.
func (n *Node) WatchNames(prefix string) *NameWatch {
	w := &NameWatch{hub: &n.names, prefix: prefix, wake: make(chan struct{}, 1)}
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	n.names.all = append(n.names.all, w)
	return w
}

// WatchClaim tells, from now on, that a lease gets a name, loses it, or no longer stands in line.
func (n *Node) WatchClaim(lease lessor.ID) *NameWatch {
	w := &NameWatch{hub: &n.names, lease: lease, wake: make(chan struct{}, 1)}
	n.names.mu.Lock()
	defer n.names.mu.Unlock()
	if n.names.byLease == nil {
		n.names.byLease = make(map[lessor.ID][]*NameWatch)
	}
	n.names.byLease[lease] = append(n.names.byLease[lease], w)
	return w
}

// Close ends the watch.
func (w *NameWatch) Close() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	is := func(other *NameWatch) bool { return other == w }
	if w.lease == lessor.NoLease {
		w.hub.all = slices.DeleteFunc(w.hub.all, is)
		return
	}
	if left := slices.DeleteFunc(w.hub.byLease[w.lease], is); len(left) > 0 {
		w.hub.byLease[w.lease] = left
	} else {
		delete(w.hub.byLease, w.lease)
	}
}

// Next waits for changes and returns them in order. If missed is set there were more before them than could
// be kept, and the watcher must look at everything anew.
func (w *NameWatch) Next(ctx context.Context) (changes []NameChange, missed bool, err error) {
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
func (w *NameWatch) Take() (changes []NameChange, missed bool) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	changes, missed = w.changes, w.missed
	w.changes, w.missed = nil, false
	return changes, missed
}

// publish is called by the member's goroutine, after readers can see the changes.
func (h *namesHub) publish(changes []NameChange) {
	if len(changes) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if c.Kind == NameAcquired {
			h.offerClaim(c.State.Lease, c)
		}
		if c.Lease != lessor.NoLease {
			h.offerClaim(c.Lease, c)
		}
		if c.Kind == LineLeft {
			continue
		}
		for _, w := range h.all {
			if strings.HasPrefix(c.State.Name, w.prefix) {
				w.offer(c)
			}
		}
	}
}

func (h *namesHub) offerClaim(lease lessor.ID, c *NameChange) {
	for _, w := range h.byLease[lease] {
		w.offer(c)
	}
}

func (w *NameWatch) offer(c *NameChange) {
	if len(w.changes) >= maxNameChanges {
		w.changes, w.missed = nil, true
	}
	w.changes = append(w.changes, *c)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
