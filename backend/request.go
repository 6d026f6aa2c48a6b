package backend

import (
	"context"
	"sync"
	"time"
)

// Request is the context of one request of a keeper to its store. It ends with the caller's context, with the
// keeper's context, after a time limit, and with End. A backend uses it like any other context.
//
// Done makes a context, which is costly for a request that is answered very fast. Such a backend can do without
// Done: it waits for both channels of [Request.Ends], and itself takes no longer than [Request.Left].
//
// A Request is safe for concurrent use. It calls no method of the caller's context while it holds its own lock.
type Request struct {
	caller, keeper context.Context
	over           time.Duration // when the time limit is reached, as a duration since began

	mu       sync.Mutex    // not held while a method of caller runs: it is the program's code
	err      error         // once it is known
	inner    *innerContext // once Done was called
	deadline *time.Time    // once Deadline was called
}

type innerContext struct {
	context.Context
	end func()
}

// began is the start of this process. Reading the time since then costs half as much as reading the time of day
// too.
var began = time.Now()

// NewRequest returns the context of a request with a time limit. The caller must call End.
func NewRequest(caller, keeper context.Context, limit time.Duration) *Request {
	if end, ok := caller.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	// For a very long limit the sum wraps around, and so does the difference in Left, which is right again.
	return &Request{caller: caller, keeper: keeper, over: time.Since(began) + max(0, limit)}
}

// End ends the request.
func (r *Request) End() {
	r.mu.Lock()
	inner := r.inner
	if inner == nil && r.err == nil {
		r.err = context.Canceled
	}
	r.mu.Unlock()
	if inner != nil {
		inner.end()
	}
}

// Ends returns the channels that end the request before its time; either may be nil.
func (r *Request) Ends() (caller, keeper <-chan struct{}) { return r.caller.Done(), r.keeper.Done() }

// Deadline implements [context.Context].
func (r *Request) Deadline() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deadline == nil {
		left := r.Left() // before the time is read, so that the time is over at the Deadline
		deadline := time.Now().Add(left)
		r.deadline = &deadline
	}
	return *r.deadline, true
}

// Left returns the time until the Deadline: zero or less once that has passed. It costs less than Deadline.
func (r *Request) Left() time.Duration { return r.over - time.Since(began) }

// Done implements [context.Context].
func (r *Request) Done() <-chan struct{} {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner == nil {
		inner = r.makeInner()
	}
	return inner.Done()
}

// makeInner returns inner, and makes it if there is none.
func (r *Request) makeInner() *innerContext {
	ctx, cancel := context.WithTimeout(r.caller, r.Left())
	leave := context.AfterFunc(r.keeper, cancel)
	made := &innerContext{ctx, func() { leave(); cancel() }}
	r.mu.Lock()
	if r.inner == nil {
		r.inner = made
	}
	inner, ended := r.inner, r.err != nil
	r.mu.Unlock()
	if inner != made || ended || r.keeper.Err() != nil {
		made.end() // End may have been called before, and will not be again
	}
	return inner
}

// Err implements [context.Context].
func (r *Request) Err() error {
	r.mu.Lock()
	known, inner := r.err, r.inner
	r.mu.Unlock()
	if known != nil {
		return known
	}
	err := r.whyEnded(inner)
	if err == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	return r.err
}

// whyEnded returns why the request has ended, or nil if it has not.
func (r *Request) whyEnded(inner *innerContext) error {
	if inner != nil {
		return inner.Err()
	}
	if err := r.caller.Err(); err != nil {
		return err
	}
	switch {
	case r.keeper.Err() != nil:
		return context.Canceled
	case r.Left() <= 0:
		return context.DeadlineExceeded
	}
	return nil
}

// Value implements [context.Context].
func (r *Request) Value(key any) any {
	r.mu.Lock()
	inner := r.inner
	r.mu.Unlock()
	if inner != nil {
		return inner.Context.Value(key) // so that a context derived from it needs no goroutine to end with it
	}
	return r.caller.Value(key)
}
