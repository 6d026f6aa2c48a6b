package httpfence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leasekeeper/leasekeeper/fence"
)

// Config is how a [Middleware] works.
type Config struct {
	// Guard remembers the tokens. It is required, and may be shared with others that write to the same
	// resources.
	Guard *fence.Guard
	// Name says which resource a request would write to. It is required and is called by any number of
	// goroutines. Requests for one resource must have one name, however they spell it: take an id that was
	// looked up, or a cleaned path, and not what the client sent. A request with an empty name is refused.
	Name func(*http.Request) string
	// TokenOptional lets requests without a token through, unguarded. It is for the time until all clients
	// send one; while it is set, a stale client gets through by sending none.
	TokenOptional bool
	// Refused, if it is not nil, is told of each request that was refused and why, for logs and metrics: what
	// the client is told of a failure of the guard's Marks is only that there was one. It is called by any
	// number of goroutines.
	Refused func(r *http.Request, err error)
}

// Middleware returns what puts the guard before a handler. Put it only before what writes: readers have no
// token. It panics if Guard or Name is missing.
//
// The handler is done with the resource when it returns, not later; see [fence.Guard.Do].
func Middleware(c Config) func(http.Handler) http.Handler {
	if c.Guard == nil || c.Name == nil {
		panic("httpfence: Config.Guard and Config.Name are required")
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

// interruptible makes reads of the request's body end when ctx does, until the function it returns was
// called: a handler that reads what a client sends slowly does not look at its context meanwhile.
func interruptible(ctx context.Context, w http.ResponseWriter) (end func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		// A writer that cannot do this is one that some other middleware wrapped; then the read goes on.
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
