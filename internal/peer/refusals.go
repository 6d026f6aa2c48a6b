package peer

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/peer"
)

// maxRefusals bounds the number of remembered refused members. Refusals of further members are not logged.
const maxRefusals = 64

// refusals logs the reason for refusing a member once, however often the member retries.
type refusals struct {
	mu     sync.Mutex
	logged map[uint64]string // last logged reason, by the member that the caller claims to be
}

func (r *refusals) log(ctx context.Context, log *slog.Logger, member uint64, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logged == nil {
		r.logged = make(map[uint64]string)
	}
	before, known := r.logged[member]
	if before == why.Error() || !known && len(r.logged) >= maxRefusals {
		return
	}
	r.logged[member] = why.Error()
	address := "unknown"
	if p, ok := peer.FromContext(ctx); ok {
		address = p.Addr.String()
	}
	log.Warn("a connection is refused", "from", address, "why", why)
}

// forget removes a member that was accepted.
func (r *refusals) forget(member uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.logged, member)
}
