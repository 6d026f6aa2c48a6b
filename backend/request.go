package backend

import (
	"context"
	"sync"
	"time"
)

// Request is the context of one request of a keeper to its store. It ends with that of the caller and with that of
// the keeper, after a time, and with End. A backend uses it like any other context. One for which that is too much work
// for a request that is answered in no time can do without Done, which makes it: it waits for both of
// [Request.Ends], and sees to it by itself that it does not take longer than is [Request.Left]. It is safe for
// concurrent use.
type Request struct {
	caller, keeper context.Context
	over           time.Duration // when its time is, since began

	mu       sync.Mutex
	err      error         // once it is known
	inner    *innerContext // once somebody has asked for Done
	deadline *time.Time    // once somebody has asked for it
}

type innerContext struct {
	context.Context
	end func()
}

// began is a while ago. To read how long that is takes half the time that reading the time of day takes as well.
var began = time.Now()

// NewRequest returns the context of a request that may take so long. Its maker calls End.
func NewRequest(caller, keeper context.Context, limit time.Duration) *Request {
	if end, ok := caller.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	// For a very long limit the sum wraps around, and what Left makes of it is right nevertheless.
	return &Request{caller: caller, keeper: keeper, over: time.Since(began) + max(0, limit)}
}

// End is when the request is over.
func (r *Request) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner != nil {
		r.inner.end()
	} else if r.err == nil {
		r.err = context.Canceled
	}
}

// Ends returns what ends the request before its time: either channel may be nil.
func (r *Request) Ends() (caller, keeper <-chan struct{}) { return r.caller.Done(), r.keeper.Done() }

// Deadline implements [context.Context].
func (r *Request) Deadline() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline == nil {
		left := r.Left() // before the time is read, so that with the Deadline the time is over
		deadline := time.Now().Add(left)
		r.deadline = &deadline
	}
	return *r.deadline, true
}

// Left is how long it is until the Deadline: nothing, or less, once that has passed. To ask for it is less work.
func (r *Request) Left() time.Duration { return r.over - time.Since(began) }

// Done implements [context.Context].
func (r *Request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		inner, cancel := context.WithTimeout(r.caller, r.Left())
		leave := context.AfterFunc(r.keeper, cancel)
		if r.err != nil || r.keeper.Err() != nil {
			leave() // End may have been called before, and will not be again
			cancel()
		}
		r.inner = &innerContext{inner, func() { leave(); cancel() }}
	}
	return r.inner.Done()
}

// Err implements [context.Context].
func (r *Request) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.err != nil:
	case r.inner != nil:
		r.err = r.inner.Err()
	case r.caller.Err() != nil:
		r.err = r.caller.Err()
	case r.keeper.Err() != nil:
		r.err = context.Canceled
	case r.Left() <= 0:
		r.err = context.DeadlineExceeded
	}
	return r.err
}

// Value implements [context.Context].
func (r *Request) Value(key any) any {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner != nil {
		return inner.Context.Value(key) // so that what is derived from it needs no goroutine to end with it
	}
	return r.caller.Value(key)
}
