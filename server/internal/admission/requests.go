package admission

import (
	"sync"
	"sync/atomic"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// userShare bounds the open requests of one user: to 1/userShare of what the others leave. With the user's waiting claims,
// that leaves the others room among all that is open on the server.
const userShare = 4

// Requests bounds the open requests on all connections together, and those of each user among them: one user may have a
// quarter of what the others leave. Requests without a user have no bound of their own. Its methods are safe for concurrent
// use.
type Requests struct {
	limit int64
	open  atomic.Int64 // of all clients

	mu    sync.Mutex
	users map[Identity]int64 // the part of open that each user has; only users that have some
}

// NewRequests allows most open requests.
func NewRequests(most int) *Requests {
	return &Requests{limit: int64(most), users: make(map[Identity]int64)}
}

// Open returns the number of open requests.
func (r *Requests) Open() int64 { return r.open.Load() }

// Begin counts one more open request of a user, which [UserOf] has returned. At a bound it returns
// [replica.ErrTooManyRequests].
func (r *Requests) Begin(user Identity) error {
	all := r.open.Add(1)
	if all > r.limit || user != "" && !r.beginOwn(user, all) {
		r.open.Add(-1)
		return replica.ErrTooManyRequests
	}
	return nil
}

// beginOwn counts one more request of a user if that is within the user's share. The request is one of all already.
func (r *Requests) beginOwn(user Identity, all int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.users[user] + 1
	left := r.limit - (all - own)
	if own > max(1, (left+userShare-1)/userShare) {
		return false
	}
	r.users[user] = own
	return true
}

// End counts n open requests of a user as answered.
func (r *Requests) End(user Identity, n int) {
	r.open.Add(-int64(n))
	if user == "" || n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[user] -= int64(n); r.users[user] == 0 {
		delete(r.users, user)
	}
}
