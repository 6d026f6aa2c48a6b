package admission

import (
	"sync/atomic"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// Requests counts the requests with one answer that are under way on all connections together.
type Requests struct {
	most int64
	open atomic.Int64
}

// NewRequests allows so many requests at the same time.
func NewRequests(most int) *Requests { return &Requests{most: int64(most)} }

// Open returns how many requests are under way.
func (r *Requests) Open() int64 { return r.open.Load() }

// Begin counts one more request, or refuses it with [replica.ErrTooManyRequests].
func (r *Requests) Begin() error {
	if r.open.Add(1) > r.most {
		r.open.Add(-1)
		return replica.ErrTooManyRequests
	}
	return nil
}

// End says that n requests that began have their answers.
func (r *Requests) End(n int) { r.open.Add(-int64(n)) }
