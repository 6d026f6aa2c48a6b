package keepertest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
)

// PriorityOrdersProcesses fails the test unless callers of two keepers get the name x, which holder has, by priority, and
// tokens grow. After each call begins, queued returns once the caller has its place in the queue. first is the highest
// priority so far, and n counts the calls from 0.
func PriorityOrdersProcesses(t *testing.T, holder, one, two *leasekeeper.Keeper, queued func(n int, who string, first leasekeeper.Priority)) {
	t.Helper()
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	last, first := l.Token(), leasekeeper.Priority(-1)
	var group sync.WaitGroup
	for n, c := range []struct {
		by       *leasekeeper.Keeper
		who      string
		priority leasekeeper.Priority
	}{{one, "low", -1}, {two, "two", 0}, {one, "high", 7}, {two, "higher", 8}, {one, "middle", 3}} {
		group.Go(func() {
			err := c.by.Run(t.Context(), "x", func(_ context.Context, l *leasekeeper.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				if order = append(order, c.who); l.Token() <= last {
					t.Errorf("token %d after %d", l.Token(), last)
				}
				last = l.Token()
				time.Sleep(300 * time.Millisecond) // meanwhile the next caller of this process gets its ticket
				return nil
			}, leasekeeper.WithPriority(c.priority))
			if err != nil {
				t.Errorf("%s: %v", c.who, err)
			}
		})
		first = max(first, c.priority)
		queued(n, c.who, first)
	}
	if err := l.Check(); err != nil {
		t.Errorf("a priority has ended the tenure: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	group.Wait()
	if want := []string{"higher", "high", "middle", "two", "low"}; !slices.Equal(order, want) {
		t.Errorf("in the order %q, want %q", order, want)
	}
}
