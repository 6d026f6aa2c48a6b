package claim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// firstRelisten and longestRelisten are the pauses before listening again after that has failed. Meanwhile
	// there is polling, so nothing waits for it.
	firstRelisten   = 100 * time.Millisecond
	longestRelisten = 30 * time.Second
	// linger is how long to listen on when nobody waits any more: often somebody soon does again.
	linger = 5 * time.Second
)

// hints listens to the store's [Notifier] as long as somebody wants it to: all who wait share one goroutine.
type hints struct {
	store   Notifier // nil if the store is none
	changed func(name string)
	calls   *calls

	mu     sync.Mutex
	wanted int
	stop   context.CancelFunc // nil if nobody listens
	idle   *time.Timer        // ends the listening
}

// want has somebody listen until the returned function is called.
func (h *hints) want() (enough func()) {
	if h.store == nil {
		return func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted++
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.stop == nil {
		h.start()
	}
	return sync.OnceFunc(h.enough)
}

// start starts to listen, unless the backend is closed. The lock is held.
func (h *hints) start() {
	ctx, end, err := h.calls.begin(context.Background())
	if err != nil {
		return
	}
	ctx, h.stop = context.WithCancel(ctx)
	go func() {
		defer end() // Close waits for that
		h.listen(ctx)
	}()
}

func (h *hints) enough() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted--; h.wanted == 0 && h.stop != nil {
		h.idle = time.AfterFunc(linger, h.hush)
	}
}

// hush ends the listening if still nobody wants it.
func (h *hints) hush() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wanted == 0 && h.stop != nil {
		h.stop()
		h.stop, h.idle = nil, nil
	}
}

// listen listens, and begins anew when that breaks. Who waits goes on polling all the while.
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
		if !rest(ctx, min(longestRelisten, firstRelisten<<min(fails, 10))) {
			return
		}
	}
}

// close forgets the timer. The rest ends with the calls of the backend.
func (h *hints) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.idle != nil {
		h.idle.Stop()
	}
}

// about returns something near d, so that what was started together does not stay together.
func about(d time.Duration) time.Duration { return d - d/4 + rand.N(d/2+1) }

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
