//go:build unix

package migration

import (
	"bufio"
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	_ "github.com/leasekeeper/leasekeeper/backend/postgres" // postgres:
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"   // sqlite:
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/keepertest"
)

// Lock is the name of the migration lock in all tests.
const Lock = "migrations/app"

// closeWithin is how long closing a keeper may take.
const closeWithin = time.Minute

// Setting is a migrated database and a store of leases.
type Setting struct {
	Direct string // the URL of the migrated database, without a pooler
	App    string // the URL by which migrators reach it
	Lease  string // the URL of the store; empty if it is in memory
}

// Settings runs a test in each setting. Each has a new database with a table ran (step int).
func Settings(t *testing.T, test func(t *testing.T, s Setting)) {
	SettingsWithGate(t, test)
	forPoolers(t, "lease in SQLite", func(t *testing.T, s Setting) {
		s.Lease = "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
		test(t, s)
	})
}

// SettingsWithGate is Settings without those that have no gate: the lease is in the migrated database.
func SettingsWithGate(t *testing.T, test func(t *testing.T, s Setting)) {
	forPoolers(t, "lease in PostgreSQL", test)
}

// SettingsInMemory is Settings for a lease in the memory of the test.
func SettingsInMemory(t *testing.T, test func(t *testing.T, s Setting)) {
	forPoolers(t, "lease in memory", func(t *testing.T, s Setting) {
		s.Lease = ""
		test(t, s)
	})
}

// forPoolers runs a test without and with a pooler, with the lease in the migrated database.
func forPoolers(t *testing.T, lease string, test func(t *testing.T, s Setting)) {
	server := databases.PostgreSQL(t)
	for _, pooler := range []string{"direct", "pgbouncer"} {
		t.Run(pooler+", "+lease, func(t *testing.T) {
			s := Setting{Direct: server.Database(t)}
			s.App, s.Lease = s.Direct, s.Direct
			if pooler == "pgbouncer" {
				s.App = server.NewPgBouncer(t).Before(t, s.Direct)
				s.Lease = s.App + "&poll=50ms"
			}
			server.Run(t, s.Direct, "CREATE TABLE ran (step int)")
			test(t, s)
		})
	}
}

// Keeper opens a keeper, which the end of the test closes.
func Keeper(t testing.TB, url string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	t.Helper()
	return keepertest.Open(t, closeWithin, url, o...)
}

// InMemory returns a keeper on a store in memory, and the client to inject faults into.
func InMemory(t testing.TB, store *memory.Store, o ...leasekeeper.KeeperOption) (*leasekeeper.Keeper, *memory.Backend) {
	t.Helper()
	client := store.Backend()
	return keepertest.New(t, closeWithin, client, o...), client
}

// Open opens a database with the driver "pgx", which the test imports.
func Open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Scan reads one value of the database.
func Scan[T any](t testing.TB, db *sql.DB, query string) (v T) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// Sleeping is the statement of a migration that does not end by itself, and CountSleeping counts its executions by other
// sessions.
const (
	Sleeping      = "SELECT pg_sleep(3600)"
	CountSleeping = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg\\_sleep(3600)%' AND pid <> pg_backend_pid()"
)

// Eventually waits until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// Is fails unless err is of a kind.
func Is(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, and not %v", err, kind)
	}
}

// ChildTTL is the TTL of the lease of a child: a process that migrates until it is killed.
const ChildTTL = 3 * time.Second

// Begun is the line that a child writes when it holds the lock and migrates.
const Begun = "begun"

// AfterKill starts a child, kills it when it migrates, and then calls takeOver, which must not return before the TTL of the
// child's lease has passed.
func AfterKill(t *testing.T, child *exec.Cmd, takeOver func()) {
	t.Helper()
	earliest := time.Now().Add(ChildTTL) // the child's lease begins later
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != Begun+"\n" {
		t.Fatalf("the child wrote %q, %v", line, err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	takeOver()
	if early := time.Until(earliest); early > 0 {
		t.Errorf("took over %v before the TTL had passed", early)
	}
}
