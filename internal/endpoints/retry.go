package endpoints

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

const (
	// maxRetries is how often a stream may fail in a row until its caller receives the error.
	maxRetries = 12
	// steady is how long a stream must last to count as good: if it fails later, earlier failures do not count.
	steady = 5 * time.Second
	// FirstStall is how long the store may be silent during a renewal until the backend tries another endpoint as well.
	FirstStall = time.Second
)

// Stall returns how long the store may be silent before another attempt begins, after that many silent attempts. The time
// doubles with each: the earlier attempts continue, so a slow store can answer one of them. It is at most a third of the time
// that ctx leaves.
func Stall(ctx context.Context, stalls int) time.Duration {
	stall := backoff.Doubled(FirstStall, math.MaxInt64, stalls)
	if end, ok := ctx.Deadline(); ok {
		return min(stall, time.Until(end)/3)
	}
	return stall
}

// Retries counts how often a stream has failed in a row.
type Retries[W any] struct {
	set      *Set[W]
	what     string // names the call in errors
	failures int
	began    time.Time
}

// Retries returns a count for one call. what names the call in errors.
func (s *Set[W]) Retries(what string) *Retries[W] { return &Retries[W]{set: s, what: what} }

// Begin notes that an attempt begins.
func (r *Retries[W]) Begin() { r.began = time.Now() }

// Succeeded notes that the attempt succeeded, so the next failure is the first.
func (r *Retries[W]) Succeeded() { r.failures = 0 }

// After notes that the attempt failed, waits, and returns nil if the caller is to try again. Otherwise it returns the error
// for the caller.
func (r *Retries[W]) After(ctx context.Context, err error) error {
	if r.failures++; time.Since(r.began) > steady {
		r.failures = 1
	}
	if ended := Ended(ctx); ended != nil {
		return fmt.Errorf("%s: %w", r.what, ended)
	}
	if store := r.set.store; store.Answered(err) || r.failures >= maxRetries {
		return store.Outcome(err).Read(r.what)
	}
	if !r.set.Pause(ctx, r.failures) {
		return fmt.Errorf("%s: %w", r.what, Ended(ctx))
	}
	return nil
}
