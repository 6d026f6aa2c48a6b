package postgres

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// notifyDelay is how long a name that got a holder waits for further names, to be sent with them. No process waits
	// for this news; watches see it a little later.
	notifyDelay = 20 * time.Millisecond
	// notifyInterval is the least time between two sends, in which further names gather. A send costs as much as a
	// release, so a process that releases all the time must not send for each release.
	notifyInterval = 20 * time.Millisecond
	// notifyLimit bounds one send, and closeLimit bounds how long close waits for the last one.
	notifyLimit = 5 * time.Second
	closeLimit  = time.Second
	// maxNames bounds the names of one send. If there are more, the send says that any name may have changed.
	maxNames = 256
)

// notifier notifies listening processes of changes of owners. It does so after the writes, not within their transactions:
// the server commits transactions that notify one at a time, so each would wait for the disk alone. It has one goroutine,
// which ends when all names are sent.
type notifier struct {
	send func(ctx context.Context, names []string) error // set before the store is used

	stop   chan struct{} // closed by close
	urgent chan struct{} // has capacity for one signal: some name is vacant
	mu     sync.Mutex
	names  []string      // to be sent, in the order of their changes, without duplicates
	vacant bool          // one of the names is vacant, so a process may wait for it
	done   chan struct{} // closed when the goroutine ends; nil if none runs
	closed bool
}

func newNotifier() *notifier {
	return &notifier{stop: make(chan struct{}), urgent: make(chan struct{}, 1)}
}

// add queues a name for a send. If the name is vacant, the send does not wait for notifyDelay.
func (t *notifier) add(name string, vacant bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	switch {
	case slices.Contains(t.names, name):
	case len(t.names) < maxNames:
		t.names = append(t.names, name)
	default:
		t.names = append(t.names[:0], "") // stands for any name
	}
	if vacant && !t.vacant {
		t.vacant = true
		select {
		case t.urgent <- struct{}{}:
		default:
		}
	}
	if t.done == nil {
		t.done = make(chan struct{})
		go t.run()
	}
}

// run sends names until none are left.
func (t *notifier) run() {
	delay := time.NewTimer(notifyDelay)
	defer delay.Stop()
	interval := time.NewTimer(0)
	defer interval.Stop()
	for {
		select {
		case <-t.urgent:
		case <-delay.C:
		case <-t.stop:
		}
		select {
		case <-interval.C:
		case <-t.stop:
		}
		names := t.take()
		if names == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), notifyLimit)
		_ = t.send(ctx, names) // on an error, waiting processes find out by polling
		cancel()
		delay.Reset(notifyDelay)
		interval.Reset(notifyInterval)
	}
}

// take returns the names to send. It returns nil if there are none, and the goroutine must then end.
func (t *notifier) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	names := t.names
	t.names, t.vacant = nil, false
	if len(names) == 0 {
		close(t.done)
		t.done = nil
		return nil
	}
	select {
	case <-t.urgent: // the signal was for these names
	default:
	}
	return names
}

// close waits up to closeLimit until the last names are sent, then calls cut, which must end a send under way, and returns
// when the goroutine has ended. Later names are dropped.
func (t *notifier) close(ctx context.Context, cut func()) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.stop)
	}
	done := t.done
	t.mu.Unlock()
	if done == nil {
		cut()
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	cut()
	<-done
}
