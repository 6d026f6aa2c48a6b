package remote

import (
	"context"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/endpoints"
)

// LeaseIDOf is the id of the lease that a claim makes.
var LeaseIDOf = endpoints.LeaseID

// AwaitWithoutTurn is Await when the stream has broken.
func AwaitWithoutTurn(b *Backend, ctx context.Context, l backend.Lease) (backend.Grant, error) {
	if t := l.(*lease).turn.Swap(nil); t != nil {
		t.quit(errReplaced)
	}
	return b.Await(ctx, l)
}

// Unanswered is how many messages of renewals, and how many claims and releases, are waited for.
func Unanswered(b *Backend) int {
	n := 0
	for _, w := range b.endpoints.All() {
		n += count(&w.renewals, func(s *muxStream[*renewMessage]) int { return len(s.asked) })
		n += count(&w.holds.mux, func(s *muxStream[*holdCall]) int { return len(s.asked) })
	}
	return n
}

// Unsent is how many claims and releases wait to be sent.
func Unsent(b *Backend) int {
	n := 0
	for _, w := range b.endpoints.All() {
		n += count(&w.holds.mux, func(s *muxStream[*holdCall]) int { return len(s.unsent) })
	}
	return n
}

func count[R any](m *mux[R], requests func(*muxStream[R]) int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream == nil {
		return 0
	}
	m.stream.mu.Lock()
	defer m.stream.mu.Unlock()
	return requests(m.stream)
}
