package endpoints

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

const (
	// minAttempts is how often a request is made at least, at all endpoints together, before the backend gives up.
	minAttempts = 4
	// firstPause and longestPause bound the pauses between rounds through all endpoints.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// Attempt makes a request once, at the endpoint with that number. sent reports whether the request may have left.
type Attempt[W any] func(ctx context.Context, w W, number int64) (sent bool, err error)

// CutShort is why a request ended early, and what a server had answered before: that it cannot serve the request now.
type CutShort struct {
	Why     error
	Refusal error // a status
}

func (c *CutShort) Error() string { return c.Why.Error() }
func (c *CutShort) Unwrap() error { return c.Why }

// keepRefusal returns a [CutShort] if the last attempt was refused for the moment, and otherwise why.
func (s *Set[W]) keepRefusal(why, last error) error {
	if !s.store.Elsewhere(last) {
		return why
	}
	return &CutShort{why, last}
}

// Attempts returns the number of attempts for an operation: at least least, and two at each endpoint.
func (s *Set[W]) Attempts(least int) int { return max(least, 2*len(s.endpoints)) }

// Ask makes a request at one endpoint after the other until one answers. It gives up when ctx ends, and after a number of
// attempts.
func (s *Set[W]) Ask(ctx context.Context, try Attempt[W]) Outcome {
	return s.AskWithin(ctx, func(ctx context.Context, limit time.Duration, w W, number int64) (sent bool, err error) {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return try(attempt, w, number)
	})
}

// AskWithin is Ask for attempts that enforce their limit themselves.
func (s *Set[W]) AskWithin(ctx context.Context, try func(ctx context.Context, limit time.Duration, w W, number int64) (sent bool, err error)) Outcome {
	attempts := s.Attempts(minAttempts)
	o := Outcome{store: s.store}
	for n := range attempts {
		w, number := s.Endpoint()
		limit := s.patience
		if left, ok := timeLeft(ctx); ok {
			limit = min(limit, left/time.Duration(max(1, len(s.endpoints)-n)))
		}
		sent, err := try(ctx, limit, w, number)
		if o.Err = err; err == nil || s.store.Answered(err) {
			return o
		}
		o.Maybe = o.Maybe || sent && !s.store.Elsewhere(err)
		if ctx.Err() != nil {
			o.Err = s.keepRefusal(context.Cause(ctx), err)
			// A request that was cancelled learned nothing about the endpoint; one that ran out of time did.
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				s.Leave(number)
			}
			return o
		}
		if s.Base.Err() != nil {
			o.Err = s.Closed
			return o
		}
		s.Leave(number)
		if n+1 < attempts && !s.pauseUntil(ctx, s.Base.Done(), n+1) {
			o.Err = s.keepRefusal(cmp.Or(context.Cause(ctx), s.Closed), err)
			return o
		}
	}
	return o
}

// timeLeft returns the time until the deadline of a context, if it has one.
func timeLeft(ctx context.Context) (time.Duration, bool) {
	if r, ok := ctx.(*backend.Request); ok {
		return r.Left(), true
	}
	end, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(end), true
}

// Pause waits after that many failures in a row. It does not wait while there are endpoints to try, and then longer with each
// round. It returns false if ctx ends.
func (s *Set[W]) Pause(ctx context.Context, failures int) bool {
	return s.pauseUntil(ctx, nil, failures)
}

// pauseUntil is Pause that also returns false when over is closed.
func (s *Set[W]) pauseUntil(ctx context.Context, over <-chan struct{}, failures int) bool {
	length := s.PauseLength(failures)
	if length == 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	case <-over:
		return false
	}
}

// PauseLength is how long to wait after that many failures in a row. It is random within a range.
func (s *Set[W]) PauseLength(failures int) time.Duration {
	rounds := failures - len(s.endpoints)
	if rounds < 0 {
		return 0
	}
	return backoff.Below(backoff.Doubled(firstPause, longestPause, rounds), rand.Uint64())
}
