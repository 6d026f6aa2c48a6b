//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// openDB opens a database by database/sql with pgx's driver. It is closed at the end of the test. set may be nil.
func openDB(t testing.TB, url string, set func(*pgx.ConnConfig), o ...stdlib.OptionOpenDB) *sql.DB {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(c)
	}
	db := stdlib.OpenDB(*c, o...)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// storeOn returns a store that is closed at the end of the test.
func storeOn(t testing.TB, db *sql.DB, c Config) *Store {
	t.Helper()
	s, err := NewDB(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func TestStoreOnADBPassesTheSuite(t *testing.T) {
	url := databases.PostgreSQL(t).Database(t)
	db := openDB(t, url, nil)
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			return NewDB(t.Context(), db, Config{Namespace: namespace, StoreClock: storeClock})
		},
		Cannot: []string{claimtest.Local},
		Damage: func(t testing.TB, namespace, name string) { damage(t, url, namespace, name) },
	})
}

func TestBackendOnADBPassesTheSuite(t *testing.T) {
	t.Parallel()
	runSuiteOnDB(t, func(database string) string { return database })
}

func TestBackendOnADBPassesTheSuiteBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := databases.PostgreSQL(t).NewPgBouncer(t)
	runSuiteOnDB(t, func(database string) string { return bouncer.Before(t, database) }, claimed.WithPoll(100*time.Millisecond))
}

// runSuiteOnDB runs the suite for backends in new databases. Each backend has a sql.DB of its own, like a process.
func runSuiteOnDB(t *testing.T, urlOf func(database string) string, o ...claimed.Option) {
	backendtest.Run(t, backendtest.Config{
		Cannot: []string{backend.Transfer},
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			database := databases.PostgreSQL(t).Database(t)
			url := urlOf(database)
			return backendtest.Store{
				Open: func(t testing.TB) backend.Backend {
					s, err := NewDB(t.Context(), openDB(t, url, nil), Config{})
					if err != nil {
						t.Fatal(err)
					}
					b, err := claimed.New(s, o...)
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
				Delete: func(t testing.TB, name string) { remove(t, opened(t, database, Config{}), name) },
			}
		},
	})
}
