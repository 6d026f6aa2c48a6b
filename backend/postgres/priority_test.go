//go:build unix

package postgres

import (
	"errors"
	"testing"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

// Processes, and the callers in them, get a name by priority, and tokens grow.
func TestPriorityOrdersProcesses(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	holder := keeper(t, database, leasekeeper.WithHolder("holder"))
	one, two := keeper(t, database, leasekeeper.WithHolder("one")), keeper(t, database, leasekeeper.WithHolder("two"))
	keepertest.PriorityOrdersProcesses(t, holder, one, two, func(n int, who string, first leasekeeper.Priority) {
		most := min(int64(n)+1, 2) // tickets: one of each process
		until(t, who+" waits", func() bool { return tickets(t, database) == most })
		if n > 1 { // the process has a ticket already, which gets another place
			until(t, who+" has its place", func() bool {
				return queryOne[bool](t, database, "SELECT min(place) >> 47 = $1 FROM leasekeeper_ticket", -int64(first))
			})
		}
	})
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
