package driver

import (
	"context"
	"sync"
	"time"
)

// Request is the context of one request of a keeper to its store. It ends with that of the caller and with that of
// the keeper, after a time, and with End. A backend uses it like any other context. One for which that is too much work
// for a request that is answered in no time can do without Done, which makes it: it waits for both of
// [Request.Ends], and sees to it by itself that it does not take longer than the Deadline.
type Request struct {
	caller, keeper context.Context
	deadline       time.Time

	mu    sync.Mutex
	err   error           // once it is known
	inner context.Context // once somebody has asked for Done
	end   func()          // of inner
}

// NewRequest returns the context of a request that may take so long. Whoever makes it calls End.
func NewRequest(caller, keeper context.Context, limit time.Duration) *Request {
	r := &Request{caller: caller, keeper: keeper, deadline: time.Now().Add(limit)}
	if sooner, ok := caller.Deadline(); ok && sooner.Before(r.deadline) {
		r.deadline = sooner
	}
	return r
}

// End is when the request is over.
func (r *Request) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner != nil {
		r.end()
	} else if r.err == nil {
		r.err = context.Canceled
	}
}

// Ends returns what ends the request before its time: either channel may be nil.
func (r *Request) Ends() (caller, keeper <-chan struct{}) { return r.caller.Done(), r.keeper.Done() }

// Deadline implements [context.Context].
func (r *Request) Deadline() (time.Time, bool) { return r.deadline, true }

// Done implements [context.Context].
func (r *Request) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inner == nil {
		inner, cancel := context.WithDeadline(r.caller, r.deadline)
		leave := context.AfterFunc(r.keeper, cancel)
		if r.err != nil || r.keeper.Err() != nil {
			cancel()
		}
		r.inner, r.end = inner, func() { leave(); cancel() }
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
	case !time.Now().Before(r.deadline):
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
		return inner.Value(key) // so that what is derived from it needs no goroutine to end with it
	}
	return r.caller.Value(key)
}
