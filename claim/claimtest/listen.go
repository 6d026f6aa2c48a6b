package claimtest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/leasekeeper/leasekeeper/backend"
)

// listener is one call of Listen. The lock of the Memory guards its names.
type listener struct {
	names map[string]struct{}
	wake  chan struct{} // has room for one
}

// mostNames is how many names a listener remembers. With more, any name may have changed.
const mostNames = 1000

// notifyListeners tells all listeners that the owner of a name may have changed. The caller holds the lock.
func (s *space) notifyListeners(name string) {
	for l := range s.listeners { // order: all are notified
		if _, any := l.names[""]; !any {
			l.names[name] = struct{}{}
		}
		if len(l.names) > mostNames {
			l.names = map[string]struct{}{"": {}}
		}
		select {
		case l.wake <- struct{}{}:
		default: // it has been woken already
		}
	}
}

// Listen implements [claim.Notifier].
func (c *Client) Listen(ctx context.Context, changed func(name string)) error {
	unlock, err := c.begin(ctx, "listen")
	if err != nil {
		return err
	}
	l := &listener{names: map[string]struct{}{"": {}}, wake: make(chan struct{}, 1)}
	l.wake <- struct{}{}
	c.space.listeners[l] = struct{}{}
	unlock()
	defer func() {
		c.memory.mu.Lock()
		defer c.memory.mu.Unlock()
		delete(c.space.listeners, l)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.closed:
			return fmt.Errorf("memory: listen: %w", backend.ErrClosed)
		case <-l.wake:
		}
		c.memory.mu.Lock()
		names := slices.Sorted(maps.Keys(l.names))
		l.names = make(map[string]struct{})
		c.memory.mu.Unlock()
		for _, name := range names {
			changed(name)
		}
	}
}
