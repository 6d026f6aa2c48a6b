package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leasekeeper/leasekeeper/fence"
)

// Config configures a [Middleware].
type Config struct {
	// Guard remembers the tokens. It is required. Other code that writes to the same resources may share it.
	Guard *fence.Guard
	// Name returns the name of the resource that a request would write to. It is required. Any number of
	// goroutines call it. All requests for one resource must get the same name, so do not return text that the
	// client can spell in several ways: return an id from a lookup, or a cleaned path. The middleware refuses a
	// request with an empty name.
	Name func(*http.Request) string
	// TokenOptional admits requests without a token, unguarded. It is for the time until all clients send a
	// token: while it is set, a stale client can write by sending none.
	TokenOptional bool
	// Refused, if it is not nil, receives each refused request and the reason, for logs and metrics. The
	// client does not receive the error of the guard's Marks. Any number of goroutines call Refused.
	Refused func(r *http.Request, err error)
}

// Middleware returns a function that puts the guard before a handler. Use it only for handlers that write:
// readers have no token. Middleware panics if Guard or Name is missing.
//
// The handler must have finished its writes to the resource when it returns; see [fence.Guard.Do].
func Middleware(c Config) func(http.Handler) http.Handler {
	if c.Guard == nil || c.Name == nil {
		panic("httpfence: Config.Guard or Config.Name is missing: set both")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(w, r, next) })
	}
}

func (c *Config) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	token, err := TokenOf(r.Header)
	switch {
	case err != nil:
		c.refuse(w, r, err)
		return
	case token == 0 && c.TokenOptional:
		next.ServeHTTP(w, r)
		return
	case token == 0:
		c.refuse(w, r, errMissing)
		return
	}
	err = c.Guard.Do(r.Context(), c.Name(r), token, func(ctx context.Context) error {
		defer interruptible(ctx, w)()
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
	if err != nil { // then the handler did not run
		c.refuse(w, r, err)
	}
}

// interruptible makes reads of the request's body fail when ctx ends, until the caller calls end. Without it, a
// handler that reads from a slow client would not notice that its context has ended.
func interruptible(ctx context.Context, w http.ResponseWriter) (end func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		// This fails if another middleware has wrapped the writer; then the read continues.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !stop() {
			<-over // the writer must not be used once the handler has returned
		}
	}
}

var errMissing = fmt.Errorf("%w: the request has no fencing token: send the token of the lease under which you write, in the header %s", fence.ErrInvalid, Header)

func (c *Config) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if c.Refused != nil {
		c.Refused(r, err)
	}
	status := http.StatusServiceUnavailable
	var stale *fence.StaleError
	switch {
	case errors.As(err, &stale):
		status = http.StatusPreconditionFailed
		w.Header().Set(HighestHeader, stale.Highest.String())
	case errors.Is(err, errMissing):
		status = http.StatusPreconditionRequired
	case errors.Is(err, fence.ErrInvalid):
		status = http.StatusBadRequest
	}
	text := err.Error()
	if status == http.StatusServiceUnavailable {
		text = "the request was not carried out, and nothing was written: send it again with the same token while the lease is held"
	}
	http.Error(w, text, status)
}
