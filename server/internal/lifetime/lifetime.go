package lifetime

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"github.com/leasekeeper/leasekeeper/internal/node"
)

// settleLimit bounds how long work that must be settled may go on after the server began to stop.
const settleLimit = 2 * time.Second

// ErrStopping is why long streams end when the server stops.
var ErrStopping = fmt.Errorf("the server is stopping: %w", node.ErrStopped)

// Lifetime is how long the work of one server lasts. Make one with [New]. Its methods are safe for concurrent use.
type Lifetime struct {
	base    context.Context // ends when long streams must; its cause is what their clients receive
	endBase context.CancelCauseFunc

	goroutines sync.WaitGroup // those of the server and its fronts that are not a gRPC handler's own

	leaders *leaders
}

// New begins a lifetime. leader returns who leads, and in which term; it is nil if the member is alone.
func New(leader func() (id, term uint64)) *Lifetime {
	l := &Lifetime{leaders: newLeaders(leader)}
	l.base, l.endBase = context.WithCancelCause(context.Background())
	return l
}

// Go starts a goroutine that Wait waits for.
func (l *Lifetime) Go(f func()) { l.goroutines.Go(f) }

// Wait waits for all goroutines.
func (l *Lifetime) Wait() { l.goroutines.Wait() }

// End ends all long streams. The first cause counts.
func (l *Lifetime) End(cause error) { l.endBase(cause) }

// Context ends with the lifetime.
func (l *Lifetime) Context() context.Context { return l.base }

// Done is closed when the lifetime ends.
func (l *Lifetime) Done() <-chan struct{} { return l.base.Done() }

// Err returns why the lifetime has ended, nil while it lasts.
func (l *Lifetime) Err() error {
	if l.base.Err() == nil {
		return nil
	}
	return context.Cause(l.base)
}

// Tie says what ends a long stream besides its client and the end of the server.
type Tie int

const (
	// AnyLeader is for streams that this member serves alone. If the client requires a leader they end as those of
	// [WhileLed] do.
	AnyLeader Tie = iota
	// WhileLed is for streams that end when there has been no leader for a while.
	WhileLed
	// OneLeadership is for streams that only the leader serves: they also end when another member leads.
	OneLeadership
)

// Stream returns the context of a stream that lives as long as its client wants. It also ends, and its cause says why,
// when the server or the member stops, and when what it is tied to does. The caller must call end.
func (l *Lifetime) Stream(ctx context.Context, to Tie) (stream context.Context, end context.CancelCauseFunc) {
	if to == AnyLeader && RequiresLeader(ctx) {
		to = WhileLed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	leave := []func() bool{EndWith(l.base, cancel)}
	if to != AnyLeader {
		leave = append(leave, EndWith(l.leaders.current(), cancel))
	}
	if to == OneLeadership && l.leaders.look != nil {
		leave = append(leave, EndWith(l.Leadership().ctx, cancel))
	}
	return ctx, func(err error) {
		for _, leave := range leave {
			leave()
		}
		cancel(err)
	}
}

// Settling returns a context for work that must come to an end in any case. It lasts a little longer than the server.
func (l *Lifetime) Settling() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	leave := context.AfterFunc(l.base, func() { time.AfterFunc(settleLimit, cancel) })
	return ctx, func() { leave(); cancel() }
}

// RequiresLeader reports whether a client wants an error rather than to wait for a leader.
func RequiresLeader(ctx context.Context) bool {
	values := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
}

// EndWith ends a context for the same reason as parent. It costs no goroutine while nothing happens.
func EndWith(parent context.Context, cancel context.CancelCauseFunc) (leave func() bool) {
	return context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
}

// Pause waits for a time, or until the context ends.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
