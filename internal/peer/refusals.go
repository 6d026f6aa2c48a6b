package peer

import (
	"context"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// refusalKey is in the trailer of a call that this member has refused before a service received it.
const refusalKey = "leasekeeper-refused"

// markRefused marks the answer to a call that no service has received, and returns err.
func markRefused(ctx context.Context, err error) error {
	_ = grpc.SetTrailer(ctx, metadata.Pairs(refusalKey, "1")) // fails only outside a call
	return err
}

// Refused reports, by the trailer of a call on [Transport.Conn] that has failed, whether the other member refused the call
// before any of its services received it. Such a call has changed nothing. Programs of earlier versions refuse calls
// without saying so.
func Refused(trailer metadata.MD) bool { return len(trailer.Get(refusalKey)) > 0 }

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
