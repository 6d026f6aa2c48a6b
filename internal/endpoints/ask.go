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
	// minAttempts is how often a request is made at least before it is given up, at all endpoints together.
	minAttempts = 4
	// firstPause and longestPause are those between rounds through all endpoints.
	firstPause   = 50 * time.Millisecond
	longestPause = time.Second
)

// Attempt makes a request once, by the endpoint of that number. sent says whether it may have left.
type Attempt[W any] func(ctx context.Context, w W, number int64) (sent bool, err error)

// CutShort is why a request was given up that a server had refused for the moment, and what that server had said.
type CutShort struct {
	Why     error
	Refusal error // a status
}

func (c *CutShort) Error() string { return c.Why.Error() }
func (c *CutShort) Unwrap() error { return c.Why }

// keepRefusal keeps what a server has said, which is the cause, with the end of the caller's patience, which is not.
func (s *Set[W]) keepRefusal(why, last error) error {
	if !s.store.Elsewhere(last) {
		return why
	}
	return &CutShort{why, last}
}

// Attempts returns how often something is tried that is to be tried a number of times at least, and twice by
// each endpoint.
func (s *Set[W]) Attempts(least int) int { return max(least, 2*len(s.endpoints)) }

// Ask makes a request, of one endpoint after the other, until one is answered. It gives up when ctx ends, and
// after a number of attempts.
func (s *Set[W]) Ask(ctx context.Context, try Attempt[W]) Outcome {
	return s.AskWithin(ctx, func(ctx context.Context, limit time.Duration, w W, number int64) (sent bool, err error) {
		attempt, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return try(attempt, w, number)
	})
}

// AskWithin is Ask for attempts that see to it themselves that they do not take longer than limit.
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
			// Who was interrupted learned nothing about the endpoint; who ran out of time did.
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

// timeLeft returns how long it is until the deadline of a context, if it has one.
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

// Pause waits after so many failures in a row: not at all while there are endpoints that were not tried, and then
// the longer the more rounds there were. It returns false if ctx ends.
func (s *Set[W]) Pause(ctx context.Context, failures int) bool {
	return s.pauseUntil(ctx, nil, failures)
}

// pause is Pause that ends early, and returns false, when over is closed too.
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

// PauseLength is how long to wait after that many failures in a row. It differs each time.
func (s *Set[W]) PauseLength(failures int) time.Duration {
	rounds := failures - len(s.endpoints)
	if rounds < 0 {
		return 0
	}
	return backoff.Below(backoff.Doubled(firstPause, longestPause, rounds), rand.Uint64())
}
