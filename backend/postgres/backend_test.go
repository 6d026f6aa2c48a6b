//go:build unix

package postgres

import (
	"fmt"
	"sync/atomic"
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

// runSuite runs the suite for backends in one new database. urlOf returns the URL by which the backend reaches it.
func runSuite(t *testing.T, cannot []string, urlOf func(database string) string) {
	database := databases.PostgreSQL(t).Database(t)
	runInNamespaces(t, cannot, database, func(t testing.TB, namespace string) backend.Backend {
		b, err := backend.Open(t.Context(), urlOf(database)+"&ns="+namespace)
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// runInNamespaces runs the suite in a database. Each test has a namespace of its own. With a database for each test, a
// checkpoint of the server had to write 70 000 files to the disk, and the commits of that time took seconds.
func runInNamespaces(t *testing.T, cannot []string, database string, open func(t testing.TB, namespace string) backend.Backend) {
	var count atomic.Int64
	backendtest.Run(t, backendtest.Config{
		Cannot: cannot,
		TTL:    2 * time.Second,
		Slack:  3 * time.Second,
		New: func(t testing.TB) backendtest.Store {
			namespace := fmt.Sprintf("test%d", count.Add(1))
			return backendtest.Store{
				Open:   func(t testing.TB) backend.Backend { return open(t, namespace) },
				Delete: func(t testing.TB, name string) { remove(t, opened(t, database, Config{Namespace: namespace}), name) },
			}
		},
	})
}
