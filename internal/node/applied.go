package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// reach is how far the state of a node is, and who waits until it is further.
type appliedIndex struct {
	index atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]*appliedWait // by entry; none of them is applied
}

// reaching are those who wait for an entry.
type appliedWait struct {
	reached chan struct{}
	count   int
}

func newAppliedIndex() appliedIndex { return appliedIndex{waiting: make(map[uint64]*appliedWait)} }

// advance is called by who owns the replica, when the state has what it tells.
func (r *appliedIndex) advance(applied uint64) {
	if applied == r.index.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.index.Store(applied)
	for index, w := range r.waiting {
		if index <= applied {
			close(w.reached)
			delete(r.waiting, index)
		}
	}
}

// await returns a channel that is closed when an entry is applied, nil if it is. The caller calls leave when it does
// not wait any more.
func (r *appliedIndex) await(index uint64) (reached <-chan struct{}, leave func()) {
	if index <= r.index.Load() {
		return nil, func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if index <= r.index.Load() {
		return nil, func() {}
	}
	w := r.waiting[index]
	if w == nil {
		w = &appliedWait{reached: make(chan struct{})}
		r.waiting[index] = w
	}
	w.count++
	return w.reached, func() { r.leave(index, w) }
}

func (r *appliedIndex) leave(index uint64, w *appliedWait) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.count--; w.count == 0 && r.waiting[index] == w {
		delete(r.waiting, index)
	}
}

// Applied returns the log entry that the state of this member is at. What this member has answered is in it.
func (n *Node) Applied() uint64 { return n.applied.index.Load() }

// AwaitApplied waits until this member's own state has what a log entry brought, for as long as ctx and the configured
// ReadTimeout allow, and reports whether it has.
func (n *Node) AwaitApplied(ctx context.Context, index uint64) bool {
	reached, leave := n.applied.await(index)
	defer leave()
	if reached == nil {
		return true
	}
	timer := time.NewTimer(n.readTimeout())
	defer timer.Stop()
	select {
	case <-reached:
		return true
	case <-timer.C:
	case <-ctx.Done():
	case <-n.done:
	}
	return false
}
