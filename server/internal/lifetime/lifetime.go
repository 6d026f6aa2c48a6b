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

// settleLimit bounds how long settling work may continue after the server has begun to stop.
const settleLimit = 2 * time.Second

// ErrStopping ends long streams when the server stops.
var ErrStopping = fmt.Errorf("the server is stopping: %w", node.ErrStopped)

// ErrRemoved ends long streams when the member was removed from its cluster.
var ErrRemoved = fmt.Errorf("this member was removed from the cluster, use another one: %w", node.ErrStopped)

// Lifetime is how long the work of one server lasts. Make one with [New]. Its methods are safe for concurrent use.
type Lifetime struct {
	base    context.Context // ends when long streams must end; clients receive its cause
	endBase context.CancelCauseFunc

	goroutines sync.WaitGroup // of the server and its fronts; handlers of gRPC are not counted

	leaders *leaders
}

// New begins a lifetime. leader returns the leader and its term; it is nil if the member is alone.
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

// Tie says what ends a long stream, in addition to its client and the end of the server.
type Tie int

const (
	// AnyLeader is for streams that this member serves by itself. If the client requires a leader, they end like those
	// of [WhileLed].
	AnyLeader Tie = iota
	// WhileLed is for streams that end when there has been no leader for a while.
	WhileLed
	// OneLeadership is for streams that only the leader serves. They end like those of [WhileLed], and also when
	// another member leads.
	OneLeadership
)

// Stream returns the context of a stream that lasts as long as its client wants. The context also ends when the server
// or the member stops, and by what the stream is tied to. Its cause says why. The caller must call end.
func (l *Lifetime) Stream(ctx context.Context, to Tie) (stream context.Context, end context.CancelCauseFunc) {
	if to == AnyLeader && RequiresLeader(ctx) {
		to = WhileLed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	leave := []func() bool{EndWith(l.base, cancel)}
	if to != AnyLeader {
		leave = append(leave, EndWith(l.leaders.untilLost(), cancel))
	}
	if to == OneLeadership && l.leaders.knownLeader != nil {
		leave = append(leave, EndWith(l.Leadership().ctx, cancel))
	}
	return ctx, func(err error) {
		for _, leave := range leave {
			leave()
		}
		cancel(err)
	}
}

// Settling returns a context for work that must finish after its client has left, such as removing a failed claim. It
// outlasts the server by a short time.
func (l *Lifetime) Settling() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	leave := context.AfterFunc(l.base, func() { time.AfterFunc(settleLimit, cancel) })
	return ctx, func() { leave(); cancel() }
}

// RequiresLeader reports whether the client of a request prefers an error to waiting for a leader.
func RequiresLeader(ctx context.Context) bool {
	values := metadata.ValueFromIncomingContext(ctx, rpctypes.MetadataRequireLeaderKey)
	return len(values) > 0 && values[0] == rpctypes.MetadataHasLeader
}

// EndWith cancels a context, with the same cause, when parent ends. Until then it needs no goroutine. leave undoes it.
func EndWith(parent context.Context, cancel context.CancelCauseFunc) (leave func() bool) {
	return context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
}

// Pause waits for d, or until ctx ends. Then it returns the error of ctx.
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
