package claimed

import (
	"context"
	"fmt"
	"sync"

	"github.com/leasekeeper/leasekeeper/backend"
)

// calls are the calls under way at a backend, and its goroutines: what Close ends and waits for.
type calls struct {
	life   context.Context
	die    context.CancelCauseFunc
	closed error // the error of calls that Close ends, and of later ones

	mu    sync.Mutex
	count int
	over  bool
	idle  chan struct{} // closed when over is true and no call is left
}

func newCalls(scheme string) *calls {
	c := &calls{closed: fmt.Errorf("%s: %w: the backend was closed", scheme, backend.ErrClosed), idle: make(chan struct{})}
	c.life, c.die = context.WithCancelCause(context.Background())
	return c
}

// begin starts a call, and end must be called at its end. The returned context ends with the backend too.
func (c *calls) begin(ctx context.Context) (inner context.Context, end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, nil, c.closed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c.count++
	inner, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.life, func() { cancel(c.closed) })
	return inner, func() {
		stop()
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.count--; c.count == 0 && c.over {
			close(c.idle)
		}
	}, nil
}

// close ends all calls, and waits for them until ctx ends. It reports whether this is the first close.
func (c *calls) close(ctx context.Context) (first bool, err error) {
	c.mu.Lock()
	if first = !c.over; first {
		c.over = true
		c.die(c.closed)
		if c.count == 0 {
			close(c.idle)
		}
	}
	idle := c.count == 0
	c.mu.Unlock()
	if idle {
		return first, nil
	}
	select {
	case <-c.idle:
		return first, nil
	case <-ctx.Done():
		return first, ctx.Err()
	}
}
