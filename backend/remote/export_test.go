package remote

import (
	"context"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// LeaseIDOf is the id of the lease that a claim makes.
var LeaseIDOf = endpoints.LeaseID

// AwaitAnew is Await when the stream has broken.
func AwaitAnew(b *Backend, ctx context.Context, l backend.Lease) (backend.Grant, error) {
	if t := l.(*lease).turn.Swap(nil); t != nil {
		t.quit(errReplaced)
	}
	return b.Await(ctx, l)
}

// Unanswered is how many messages of renewals, and how many claims and releases, are waited for.
func Unanswered(b *Backend) int {
	n := 0
	for _, w := range b.endpoints.All() {
		w.renewals.mu.Lock()
		if s := w.renewals.present; s != nil {
			s.mu.Lock()
			n += len(s.asked)
			s.mu.Unlock()
		}
		w.renewals.mu.Unlock()
	}
	return n + holding(b, func(s *holdStream) int { return len(s.asked) })
}

// Unsent is how many claims and releases wait to be sent.
func Unsent(b *Backend) int { return holding(b, func(s *holdStream) int { return len(s.unsent) }) }

func holding(b *Backend, count func(*holdStream) int) int {
	n := 0
	for _, w := range b.endpoints.All() {
		w.holds.mu.Lock()
		if s := w.holds.present; s != nil {
			s.mu.Lock()
			n += count(s)
			s.mu.Unlock()
		}
		w.holds.mu.Unlock()
	}
	return n
}
