//go:build unix

package postgres

import (
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/backendtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestBackend(t *testing.T) {
	t.Parallel()
	behaviour(t, func(database string) string { return database })
}

func TestBackendBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := databases.PostgreSQL(t).NewPgBouncer(t)
	behaviour(t, func(database string) string { return bouncer.Before(t, database) + "&poll=100ms" })
}

// behaviour runs the suite for backends in new databases, which are reached by another way.
func behaviour(t *testing.T, by func(database string) string) {
	backendtest.Run(t, backendtest.Config{
		Cannot: []string{backend.Transfer},
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			database := databases.PostgreSQL(t).Database(t)
			url := by(database)
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
