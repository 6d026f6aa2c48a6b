//go:build unix

package migratelease_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	migratepgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	_ "github.com/leasekeeper/leasekeeper/backend/postgres"
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// name is the name of the migration lock in all tests.
const name = "migrations/app"

func TestMain(m *testing.M) {
	if os.Getenv(childStore) != "" {
		runChild()
		return
	}
	code := databases.Main(m)
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer")); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// setting is a migrated database and a store of leases.
type setting struct {
	direct string // the URL of the migrated database, without a pooler
	app    string // the URL by which migrators reach it
	lease  string // the URL of the store
	server *databases.PostgreSQLServer
}

// settings runs a test for each setting in which migrators run.
func settings(t *testing.T, test func(t *testing.T, s setting)) {
	server := databases.PostgreSQL(t)
	for _, bouncer := range []string{"direct", "pgbouncer"} {
		for _, store := range []string{"lease in PostgreSQL", "lease in SQLite"} {
			t.Run(bouncer+", "+store, func(t *testing.T) {
				s := setting{direct: server.Database(t), server: server}
				s.app, s.lease = s.direct, s.direct
				if bouncer == "pgbouncer" {
					s.app = server.NewPgBouncer(t).Before(t, s.direct)
					s.lease = s.app + "&poll=50ms"
				}
				if store == "lease in SQLite" {
					s.lease = "sqlite:" + filepath.Join(t.TempDir(), "leases.db")
				}
				server.Run(t, s.direct, "CREATE TABLE ran (step int)")
				test(t, s)
			})
		}
	}
}

// open opens a database.
func open(t testing.TB, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// connector returns a connector to a database. No prepared statement outlives its transaction, as poolers need it.
func connector(t testing.TB, url string) driver.Connector {
	t.Helper()
	config, err := pgx.ParseConfig(url + "&default_query_exec_mode=exec")
	if err != nil {
		t.Fatal(err)
	}
	return stdlib.GetConnector(*config)
}

// withPgx opens golang-migrate's driver for pgx.
func withPgx(db *sql.DB) (database.Driver, error) {
	return migratepgx.WithInstance(db, &migratepgx.Config{})
}

// keeper opens a keeper, which the test's end closes.
func keeper(t testing.TB, url string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.Open(t.Context(), url, o...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, k)
	return k
}

func closeAtEnd(t testing.TB, k *leasekeeper.Keeper) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := k.Shutdown(ctx); err != nil && !errors.Is(err, leasekeeper.ErrUnknownOutcome) {
			t.Errorf("Close: %v", err)
		}
	})
}

// inMemory returns a keeper on a store in memory, and the client to inject faults into.
func inMemory(t testing.TB, store *memory.Store, o ...leasekeeper.KeeperOption) (*leasekeeper.Keeper, *memory.Backend) {
	t.Helper()
	client := store.Backend()
	k, err := leasekeeper.New(client, o...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, k)
	return k, client
}

// empty is a migration without a step up. Migrate leaves the goroutine behind that reads another migration's
// text, if that migration does not run.
const empty = ""

// migrator returns a real Migrate with a driver. The test's end closes both.
func migrator(t testing.TB, d database.Driver, steps ...string) *migrate.Migrate {
	t.Helper()
	files := fstest.MapFS{}
	for i, step := range steps {
		direction := "up"
		if step == empty {
			direction = "down"
		}
		files[fmt.Sprintf("%d_step.%s.sql", i+1, direction)] = &fstest.MapFile{Data: []byte(step)}
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithInstance("iofs", source, "lease", d)
	if err != nil {
		t.Fatal(err)
	}
	m.LockTimeout = time.Hour
	t.Cleanup(func() { _, _ = m.Close() })
	return m
}

// scan reads one value of the database.
func scan[T any](t testing.TB, db *sql.DB, query string) (v T) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// is fails unless err is of a kind.
func is(t testing.TB, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Errorf("%v, and not %v", err, kind)
	}
}
