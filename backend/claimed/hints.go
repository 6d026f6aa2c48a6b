package claimed

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

const (
	// firstRelisten and longestRelisten bound the pauses before the backend listens again after a failure.
	// Waiters poll meanwhile.
	firstRelisten   = 100 * time.Millisecond
	longestRelisten = 30 * time.Second
)

// hints listens to the store's [claim.Notifier] while any call wants that. All of them share one goroutine.
type hints struct {
	store     claim.Notifier // nil if the store has no hints
	changed   func(name string)
	listening whileWanted
}

// want keeps the backend listening until the returned function is called.
func (h *hints) want() (enough func()) {
	if h.store == nil {
		return func() {}
	}
	return h.listening.want()
}

// listen listens, and starts over when that fails. Waiters poll all the while.
func (h *hints) listen(ctx context.Context) {
	for fails := 0; ; fails++ {
		began := time.Now()
		_ = h.store.Listen(ctx, func(name string) {
			if ctx.Err() == nil {
				h.changed(name)
			}
		})
		if time.Since(began) > longestRelisten {
			fails = 0
		}
		if !rest(ctx, backoff.Doubled(firstRelisten, longestRelisten, fails)) {
			return
		}
	}
}

// about returns a random duration near d, so that processes that started together drift apart.
func about(d time.Duration) time.Duration { return backoff.Around(d, 4, rand.Uint64()) }

// rest pauses for about d. It returns false if ctx ends before.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(about(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
