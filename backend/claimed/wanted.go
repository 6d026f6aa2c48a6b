package claimed

import (
	"context"
	"sync"
	"time"
)

// linger is how long the goroutine goes on when no caller wants it: often a caller soon does again.
const linger = 5 * time.Second

// whileWanted runs a function on one goroutine while any caller wants it, and for a while after that.
type whileWanted struct {
	calls *calls // the goroutine counts as one of them
	run   func(context.Context)

	mu     sync.Mutex
	wanted int
	stop   context.CancelFunc // ends the goroutine; nil if there is none
	idle   *time.Timer        // calls stop; nil while any caller wants the goroutine
}

// want keeps it running until the returned function is called.
func (w *whileWanted) want() (enough func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wanted++
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	if w.stop == nil {
		w.start()
	}
	return sync.OnceFunc(w.enough)
}

// start starts the goroutine, unless the backend is closed. The caller holds the lock.
func (w *whileWanted) start() {
	ctx, end, err := w.calls.begin(context.Background())
	if err != nil {
		return
	}
	ctx, w.stop = context.WithCancel(ctx)
	go func() {
		defer end() // Close waits for that
		w.run(ctx)
	}()
}

func (w *whileWanted) enough() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted--; w.wanted == 0 && w.stop != nil {
		w.idle = time.AfterFunc(linger, w.stopIfIdle)
	}
}

// stopIfIdle ends the goroutine if no caller wants it.
func (w *whileWanted) stopIfIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wanted == 0 && w.stop != nil {
		w.stop()
		w.stop, w.idle = nil, nil
	}
}

// close stops the timer. The goroutine ends with the calls of the backend.
func (w *whileWanted) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.idle != nil {
		w.idle.Stop()
	}
}
