//go:build unix

package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// Processes, and the callers in them, get a name by priority, and tokens grow.
func TestPriorityOrdersProcesses(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	holder := keeper(t, database, leasekeeper.WithHolder("holder"))
	one, two := keeper(t, database, leasekeeper.WithHolder("one")), keeper(t, database, leasekeeper.WithHolder("two"))
	l, err := holder.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []string
	last := l.Token()
	var group sync.WaitGroup
	for i, c := range []struct {
		by   *leasekeeper.Keeper
		who  string
		p    leasekeeper.Priority
		most int64 // tickets from then on
	}{{one, "low", -1, 1}, {two, "two", 0, 2}, {one, "high", 7, 2}, {two, "higher", 8, 2}, {one, "middle", 3, 2}} {
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
			}, leasekeeper.WithPriority(c.p))
			if err != nil {
				t.Errorf("%s: %v", c.who, err)
			}
		})
		until(t, c.who+" waits", func() bool { return tickets(t, database) == c.most })
		if i > 1 { // the process has a ticket already, which gets another place
			until(t, c.who+" has its place", func() bool {
				return queryOne[bool](t, database, "SELECT min(place) >> 47 = $1 FROM leasekeeper_ticket", -int64(max(c.p, 7+leasekeeper.Priority(min(i-2, 1)))))
			})
		}
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

// Without the table of tickets a priority is refused, and nothing is left in the store.
func TestPriorityNeedsAQueue(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	s.UseQueues(false)
	b, err := claimed.New(s)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	for range 2 {
		if _, err := k.Acquire(t.Context(), "x", leasekeeper.WithPriority(1)); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("without tickets: %v", err)
		}
	}
	if err := k.Transfer(t.Context(), "x", "y"); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("a transfer without tickets: %v", err)
	}
	if n := queryOne[int64](t, database, "SELECT count(*) FROM leasekeeper_lease"); n != 0 {
		t.Errorf("it has left %d records", n)
	}
	if l, err := k.Acquire(t.Context(), "x"); err != nil {
		t.Error(err)
	} else if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
