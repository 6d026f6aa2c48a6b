package etcdapi

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/internal/keyspace"
)

// watchRights are the rights of the watchers of one stream. A watcher whose right is withdrawn receives no later event. Its
// methods are safe for concurrent use.
type watchRights struct {
	guard    Guard
	watchers *keyspace.Stream

	mu     sync.Mutex
	policy *access.Policy         // by which all ranges were checked last; nil if a watcher has come since
	ranges map[int64]watchedRange // by watcher
	// ending are the cancelled watchers whose last response was not sent, by id: whether the right was withdrawn. A client may
	// use an id again before that.
	ending map[int64][]bool
}

type watchedRange struct{ key, end []byte }

func newWatchRights(g Guard, watchers *keyspace.Stream) *watchRights {
	return &watchRights{guard: g, watchers: watchers, ranges: make(map[int64]watchedRange), ending: make(map[int64][]bool)}
}

// check decides whether the stream's user may watch keys. An empty key is the first one, as in etcd.
func (w *watchRights) check(ctx context.Context, key, end []byte) error {
	if len(key) == 0 {
		key = []byte{0}
	}
	return w.guard.MayRead(ctx, key, end)
}

// watch adds a watcher. It is checked again with the next response.
func (w *watchRights) watch(req keyspace.WatchRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	id, err := w.watchers.Watch(req)
	if err == nil {
		w.ranges[id], w.policy = watchedRange{req.Key, req.End}, nil
	}
	return err
}

// cancel cancels a watcher. It reports false if there is none.
func (w *watchRights) cancel(id int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end(id, false)
}

// end cancels a watcher. The caller holds the lock.
func (w *watchRights) end(id int64, withdrawn bool) bool {
	if !w.watchers.Cancel(id) {
		return false
	}
	delete(w.ranges, id)
	w.ending[id] = append(w.ending[id], withdrawn)
	return true
}

// withdraw cancels the watchers whose right was withdrawn since they were checked last, and returns their number.
func (w *watchRights) withdraw(ctx context.Context) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	policy := w.guard.Policy()
	if policy == w.policy {
		return 0
	}
	for id, r := range w.ranges { // order: each one separately
		if w.check(ctx, r.key, r.end) != nil && w.end(id, true) {
			n++
		}
	}
	w.policy = policy
	return n
}

// isDenied reports whether the next response about a watcher comes after its right was withdrawn.
func (w *watchRights) isDenied(id int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.ending[id]) > 0 && w.ending[id][0]
}

// ended notes that the last response about a cancelled watcher is sent, and reports whether the right was withdrawn.
func (w *watchRights) ended(id int64) (withdrawn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.ending[id]
	if len(left) == 0 {
		delete(w.ranges, id) // it was not cancelled by a request
		return false
	}
	if w.ending[id] = left[1:]; len(left) == 1 {
		delete(w.ending, id)
	}
	return left[0]
}

// permits reports whether the client gets a response. It cancels the watchers whose right was withdrawn, and gives the reason
// with the response that says so.
func (f *watchFront) permits(ctx context.Context, r *keyspace.WatchResponse) bool {
	f.unanswered.Add(int64(f.rights.withdraw(ctx))) // account takes the responses for answers
	switch {
	case r.Created:
		return true
	case r.Canceled:
		if f.rights.ended(r.WatchID) {
			r.CancelReason = rpctypes.ErrGRPCPermissionDenied.Error()
			f.s.cfg.Metrics.Refuse(reasonDenied)
		}
		return true
	}
	return !f.rights.isDenied(r.WatchID)
}
