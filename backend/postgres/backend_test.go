//go:build unix

package postgres

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestBackendPassesTheSuite(t *testing.T) {
	t.Parallel()
	runSuite(t, []string{backend.Transfer}, func(database string) string { return database })
}

func TestBackendPassesTheSuiteBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := databases.PostgreSQL(t).NewPgBouncer(t)
	runSuite(t, []string{backend.Transfer}, func(database string) string { return bouncer.Before(t, database) + "&poll=100ms" })
}

// runSuite runs the suite for backends in new databases. urlOf returns the URL by which the backend reaches a database.
func runSuite(t *testing.T, cannot []string, urlOf func(database string) string) {
	backendtest.Run(t, backendtest.Config{
		Cannot: cannot,
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			database := databases.PostgreSQL(t).Database(t)
			url := urlOf(database)
			return backendtest.Store{
				Open: func(t testing.TB) backend.Backend {
					b, err := backend.Open(t.Context(), url)
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
