//go:build unix

package postgres

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// withoutNotify is a store without the method for notifications.
type withoutNotify struct {
	claim.Store
	claim.Batcher
	claim.Gatherer
	claim.Clocks
	claim.Bounded
	claim.Judge
	claim.Preferrer
}

// The store passes the suite behind pgbouncer in transaction mode, with the strictest default isolation.
func TestStorePassesTheSuiteBehindPgBouncer(t *testing.T) {
	server := databases.PostgreSQL(t)
	direct := server.Database(t)
	run(t, direct, "ALTER DATABASE "+strings.TrimPrefix(path(t, direct), "/")+" SET default_transaction_isolation = 'serializable'")
	through := server.NewPgBouncer(t).Before(t, direct)
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			s, err := Open(t.Context(), through, Config{Namespace: namespace, StoreClock: storeClock})
			if err != nil {
				return nil, err
			}
			return withoutNotify{s, s, s, s, s, s, s}, nil
		},
		Cannot: []string{claimtest.Local, claimtest.Notify},
		Damage: func(t testing.TB, namespace, name string) { damage(t, direct, namespace, name) },
	})
}

func path(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// Behind pgbouncer Listen fails at once, and waiters poll.
func TestListenFailsBehindPgBouncer(t *testing.T) {
	server := databases.PostgreSQL(t)
	direct := server.Database(t)
	through := server.NewPgBouncer(t).Before(t, direct)
	s := opened(t, through, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.Listen(ctx, func(string) { t.Error("a notification arrived") })
	says(t, err, backend.ErrUnavailable, "pgbouncer")
	var listening int
	if err := pool(t, direct, nil).QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'").Scan(&listening); err != nil || listening > 0 {
		t.Errorf("%d connections of the pooler still listen, %v", listening, err)
	}
	holder, waiter := keeper(t, through+"&poll=50ms"), keeper(t, through+"&poll=50ms")
	l, err := holder.TryAcquire(ctx, "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := waiter.Acquire(ctx, "jobs/x"); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(100 * time.Millisecond)
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	all.Wait()
}
