package node

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// appliedIndex is the index of the last applied log entry, and the goroutines that wait for a later one.
type appliedIndex struct {
	index atomic.Uint64

	mu      sync.Mutex
	waiting map[uint64]*appliedWait // by log index; none of these entries is applied
}

// appliedWait is the set of goroutines that wait for one log entry.
type appliedWait struct {
	reached chan struct{}
	count   int
}

func newAppliedIndex() appliedIndex { return appliedIndex{waiting: make(map[uint64]*appliedWait)} }

// advance sets the index and wakes its waiters. The caller holds owner, and the state contains the entry.
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

// await returns a channel that is closed when the entry at index is applied, or nil if it is applied already. The
// caller calls leave when it stops waiting.
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

// Applied returns the index of the last log entry in this member's state. All answers of this member reflect it.
func (n *Node) Applied() uint64 { return n.applied.index.Load() }

// AwaitApplied waits until this member's state contains the log entry at index, and reports whether it does. It waits
// for at most the configured ReadTimeout.
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
