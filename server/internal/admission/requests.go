package admission

import (
	"sync/atomic"

	"github.com/leasekeeper/leasekeeper/internal/replica"
)

// Requests bounds the open unary requests on all connections together. Its methods are safe for concurrent use.
type Requests struct {
	limit int64
	open  atomic.Int64
}

// NewRequests allows most open requests.
func NewRequests(most int) *Requests { return &Requests{limit: int64(most)} }

// Open returns the number of open requests.
func (r *Requests) Open() int64 { return r.open.Load() }

// Begin counts one more open request. At the bound it returns [replica.ErrTooManyRequests].
func (r *Requests) Begin() error {
	if r.open.Add(1) > r.limit {
		r.open.Add(-1)
		return replica.ErrTooManyRequests
	}
	return nil
}

// End counts n open requests as answered.
func (r *Requests) End(n int) { r.open.Add(-int64(n)) }
