package postgres

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// tellLull is for how long a name that has got a holder may wait for others to be told with it. Nobody waits for
	// that; who watches sees it a little later.
	tellLull = 20 * time.Millisecond
	// tellGap is how long to gather names after some were told: to tell costs as much as a release does, and a
	// process that releases all the time must not spend its time with that.
	tellGap = 20 * time.Millisecond
	// tellLimit bounds how long it may take to tell, and closeLimit how long to wait for that at the end.
	tellLimit  = 5 * time.Second
	closeLimit = time.Second
	// maxTold is how many names are told at once. If there are more, it is told that any may have changed.
	maxTold = 256
)

// teller tells those who listen of changes of owners, after the writes and not in them: of all transactions that
// notify, the server lets only one commit at a time, and would have each wait for the disk alone. It is one
// goroutine that ends when all is told.
type teller struct {
	send func(ctx context.Context, names []string) error // nil until the store is open

	stop   chan struct{} // closed by close
	hurry  chan struct{} // has room for one: somebody waits
	mu     sync.Mutex
	names  []string      // in the order of their changes, each once
	vacant bool          // somebody may wait for one of them
	done   chan struct{} // closed when the goroutine ends; nil if there is none
	closed bool
}

func newTeller() *teller {
	return &teller{stop: make(chan struct{}), hurry: make(chan struct{}, 1)}
}

// add has a name told soon; if it is vacant, at once.
func (t *teller) add(name string, vacant bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	switch {
	case slices.Contains(t.names, name):
	case len(t.names) < maxTold:
		t.names = append(t.names, name)
	default:
		t.names = append(t.names[:0], "") // any
	}
	if vacant && !t.vacant {
		t.vacant = true
		select {
		case t.hurry <- struct{}{}:
		default:
		}
	}
	if t.done == nil {
		t.done = make(chan struct{})
		go t.run()
	}
}

// run tells until there is nothing left to be told.
func (t *teller) run() {
	lull := time.NewTimer(tellLull)
	defer lull.Stop()
	gap := time.NewTimer(0)
	defer gap.Stop()
	for {
		select {
		case <-t.hurry:
		case <-lull.C:
		case <-t.stop:
		}
		select {
		case <-gap.C:
		case <-t.stop:
		}
		names := t.take()
		if names == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), tellLimit)
		_ = t.send(ctx, names) // who waits asks now and then anyway
		cancel()
		lull.Reset(tellLull)
		gap.Reset(tellGap)
	}
}

// take returns what is to be told. If that is nothing, the goroutine ends.
func (t *teller) take() []string {
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
	case <-t.hurry: // it was for these names
	default:
	}
	return names
}

// close takes no more names, waits until the last are told, for a short time, and returns when the goroutine has
// ended. cut ends whatever is being sent.
func (t *teller) close(ctx context.Context, cut func()) {
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
