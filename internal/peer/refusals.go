package peer

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc/peer"
)

// maxRefusals bounds how many of those who are refused are remembered. Beyond it the log is silent.
const maxRefusals = 64

// refusals has the log told once why a member is refused, however often it tries.
type refusals struct {
	mu     sync.Mutex
	logged map[uint64]string // by who it says it is
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

// forget is for a member that was let in.
func (r *refusals) forget(member uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.logged, member)
}
