//go:build unix

package libpq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestMain(m *testing.M) { os.Exit(databases.Main(m)) }

// open opens a database with lib/pq. It is closed at the end of the test.
func open(t testing.TB, url string) *sql.DB {
	t.Helper()
	connector, err := pq.NewConnector(url)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// storeOn returns a store that is closed at the end of the test.
func storeOn(t testing.TB, db *sql.DB, c postgres.Config) *postgres.Store {
	t.Helper()
	s, err := postgres.NewDB(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// withoutNotify is a store without the methods for notifications and queues.
type withoutNotify struct {
	claim.Store
	claim.Batcher
	claim.Gatherer
	claim.Clocks
	claim.Bounded
	claim.Judge
}

func TestStorePassesTheSuite(t *testing.T) {
	url := databases.PostgreSQL(t).Database(t)
	runStoreSuite(t, url, open(t, url))
}

// pgdriver, which many programs use with bun, puts the arguments into the text of a statement.
func TestStoreOnPgdriverPassesTheSuite(t *testing.T) {
	url := databases.PostgreSQL(t).Database(t)
	db := sql.OpenDB(pgdriver.NewConnector(pgdriver.WithDSN(url)))
	t.Cleanup(func() { _ = db.Close() })
	runStoreSuite(t, url, db)
}

func runStoreSuite(t *testing.T, url string, db *sql.DB) {
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			s, err := postgres.NewDB(t.Context(), db, postgres.Config{Namespace: namespace, StoreClock: storeClock})
			if err != nil {
				return nil, err
			}
			return withoutNotify{s, s, s, s, s, s}, nil
		},
		Cannot: []string{claimtest.Local, claimtest.Notify, claimtest.Queue},
		Damage: func(t testing.TB, namespace, name string) {
			databases.PostgreSQL(t).Run(t, url, "UPDATE leasekeeper_lease SET card = '{' WHERE ns = '"+namespace+"' AND name = '"+name+"'")
		},
	})
}

func TestBackendPassesTheSuite(t *testing.T) {
	t.Parallel()
	runSuite(t, func(database string) string { return database })
}

// binary_parameters makes lib/pq send each statement in one message, as a pooler in transaction mode needs.
func TestBackendPassesTheSuiteBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := databases.PostgreSQL(t).NewPgBouncer(t)
	runSuite(t, func(database string) string { return bouncer.Before(t, database) + "&binary_parameters=yes" })
}

// runSuite runs the suite for backends in one new database, where each test has a namespace of its own.
func runSuite(t *testing.T, urlOf func(database string) string) {
	url := urlOf(databases.PostgreSQL(t).Database(t))
	var count atomic.Int64
	backendtest.Run(t, backendtest.Config{
		Cannot: []string{backend.Transfer},
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			c := postgres.Config{Namespace: fmt.Sprintf("test%d", count.Add(1))}
			return backendtest.Store{
				Open: func(t testing.TB) backend.Backend {
					s, err := postgres.NewDB(t.Context(), open(t, url), c)
					if err != nil {
						t.Fatal(err)
					}
					b, err := claimed.New(s, claimed.WithPoll(100*time.Millisecond))
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				Delete: func(t testing.TB, name string) { remove(t, storeOn(t, open(t, url), c), name) },
			}
		},
	})
}

// remove deletes the record of a name. It raises the floor first, so that tokens keep growing.
func remove(t testing.TB, s *postgres.Store, name string) {
	t.Helper()
	f, err := s.Get(t.Context(), name)
	if err == nil {
		_, err = s.RaiseFloor(t.Context(), f.Record.Token)
	}
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.Remove(t.Context(), name, f.Record.Op); err != nil || !done {
		t.Fatal(done, err)
	}
}

// A store on lib/pq does not listen, and says why.
func TestHintsAreUnsupported(t *testing.T) {
	s := storeOn(t, open(t, databases.PostgreSQL(t).Database(t)), postgres.Config{})
	if err := s.Listen(t.Context(), func(string) { t.Error("a notification arrived") }); !errors.Is(err, backend.ErrUnavailable) {
		t.Error(err)
	}
}

func TestGateAllowsCommitsOnlyWhileHeld(t *testing.T) {
	db := open(t, databases.PostgreSQL(t).Database(t))
	b, err := claimed.New(storeOn(t, db, postgres.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	l, err := k.TryAcquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	gate := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		return postgres.GateSQL(t.Context(), tx, l)
	}
	if err := gate(); err != nil {
		t.Error(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := gate(); !errors.Is(err, backend.ErrLost) {
		t.Errorf("gated on a released lease: %v", err)
	}
}

func TestServerCrashLosesNoAcknowledgedWrite(t *testing.T) {
	server := databases.NewPostgreSQL(t)
	claimtest.RunCrashes(t, storeOn(t, open(t, server.Database(t)), postgres.Config{}), func() {
		server.Crash(t)
		server.Start(t)
	})
}
