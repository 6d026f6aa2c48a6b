package guard

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasekeeper/leasekeeper/internal/access"
	"github.com/leasekeeper/leasekeeper/server/internal/admission"
)

// refusalInterval is the shortest time between two lines of the log about refused requests.
const refusalInterval = time.Second

// refusals logs requests that are refused for want of a right or a user, at most one in each interval. They are not in the audit
// log, because a client that is refused could otherwise fill it. The zero refusals is ready.
type refusals struct {
	mu     sync.Mutex
	next   time.Time
	others int // refused since the last line
}

// due reports whether a refusal at now is logged, and how many were not since the last one.
func (r *refusals) due(now time.Time) (others int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		r.others++
		return 0, false
	}
	others, r.others, r.next = r.others, 0, now.Add(refusalInterval)
	return others, true
}

// note logs that a request was refused, if err is for want of a right or a user. It returns err.
func (g *Guard) note(ctx context.Context, method string, err error) error {
	if err == nil || !isRefusal(err) {
		return err
	}
	others, ok := g.refusals.due(time.Now())
	if !ok {
		return err
	}
	caller, _ := g.Caller(ctx) // the empty user, if the token is invalid
	from := admission.OriginOf(ctx)
	g.cfg.Log.WarnContext(ctx, "a request was refused for want of a right or a user", "method", method, "user", caller.User,
		"certificate", from.Certificate, "address", from.Address, "error", status.Convert(err).Message(), "others", others)
	return err
}

func isRefusal(err error) bool {
	code := status.Code(err)
	return code == codes.PermissionDenied || code == codes.Unauthenticated || errors.Is(err, access.ErrPermissionDenied) || errors.Is(err, access.ErrUserEmpty)
}
