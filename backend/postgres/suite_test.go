//go:build unix

package postgres

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestMain(m *testing.M) { os.Exit(databases.Main(m)) }

// damage makes a record unreadable. It sets the isolation level, so that a concurrent reader cannot make it fail where the
// default level is stricter.
func damage(t testing.TB, url, namespace, name string) {
	t.Helper()
	databases.PostgreSQL(t).Run(t, url, "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
		"UPDATE leasekeeper_lease SET card = '{' WHERE ns = '"+namespace+"' AND name = '"+name+"'")
}

// opened returns a store that is closed at the end of the test.
func opened(t testing.TB, url string, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

// poolOf returns the pool of a store.
func poolOf(s *Store) *pgxpool.Pool { return s.db.(*database).conns.(pooled).pool }

func TestStorePassesTheSuite(t *testing.T) {
	url := databases.PostgreSQL(t).Database(t)
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			return Open(t.Context(), url, Config{Namespace: namespace, StoreClock: storeClock})
		},
		Cannot: []string{claimtest.Local},
		Damage: func(t testing.TB, namespace, name string) { damage(t, url, namespace, name) },
	})
}
