package sqlite

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// raw opens a file as a person would with a shell.
func raw(t testing.TB, path string, settings string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t testing.TB, db *sql.DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// damage makes a record unreadable.
func damage(t testing.TB, db *sql.DB, namespace, name string) {
	t.Helper()
	run(t, db, "UPDATE leasekeeper_lease SET op = 'what?' WHERE ns = ? AND name = ?", namespace, name)
}

// cannot lists the abilities that this store lacks on this system. Tickets are locks that only Linux has.
func cannot() []string {
	if runtime.GOOS != "linux" {
		return []string{claimtest.Judge, claimtest.Queue}
	}
	return []string{claimtest.Judge}
}

// opened returns a store that is closed when the test ends.
func opened(t testing.TB, path string, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(t.Context()) })
	return s
}

func TestStorePassesTheSuite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "leases.db")
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			if storeClock {
				return nil, fmt.Errorf("sqlite has no clock of its own: %w", backend.ErrInvalid)
			}
			return Open(t.Context(), path, Config{Namespace: namespace, look: onOwnDisk, here: clock.SystemDomain()})
		},
		Cannot:    cannot(),
		OtherBoot: otherBoot,
		Damage:    func(t testing.TB, namespace, name string) { damage(t, raw(t, path, ""), namespace, name) },
	})
}

// The suite passes in a database of the caller's, even with a single connection.
func TestStoreInADatabaseOfTheCallerPassesTheSuite(t *testing.T) {
	db := raw(t, filepath.Join(t.TempDir(), "app.db"), "&_pragma=synchronous(FULL)")
	db.SetMaxOpenConns(1)
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, _ bool) (claim.Store, error) {
			return New(t.Context(), db, Config{Namespace: namespace, Prefix: "app_", look: onOwnDisk, here: clock.SystemDomain()})
		},
		Cannot:    cannot(),
		OtherBoot: otherBoot,
		Damage: func(t testing.TB, namespace, name string) {
			run(t, db, "UPDATE app_lease SET past = '{' WHERE ns = ? AND name = ?", namespace, name)
		},
	})
}
