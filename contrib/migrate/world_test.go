//go:build unix

package migratelease_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"os/exec"
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

	_ "github.com/leasekeeper/leasekeeper/backend/postgres"
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/migration"
)

// name is the name of the migration lock in all tests.
const name = migration.Lock

// The environment variables of a child process, which migrates until it is killed.
const (
	childStore    = "MIGRATELEASE_TEST_STORE"
	childDatabase = "MIGRATELEASE_TEST_DATABASE"
)

// child returns a child process for a setting.
func child(s migration.Setting) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childStore+"="+s.Lease, childDatabase+"="+s.App)
	return cmd
}

func TestMain(m *testing.M) {
	if store := os.Getenv(childStore); store != "" {
		runChild(store, os.Getenv(childDatabase))
		return
	}
	code := databases.Main(m)
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer")); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// execMode lets no prepared statement outlive its transaction, as poolers need it.
const execMode = "&default_query_exec_mode=exec"

// connector returns a connector to a database.
func connector(t testing.TB, url string) driver.Connector {
	t.Helper()
	config, err := pgx.ParseConfig(url + execMode)
	if err != nil {
		t.Fatal(err)
	}
	return stdlib.GetConnector(*config)
}

// withPgx opens golang-migrate's driver for pgx.
func withPgx(db *sql.DB) (database.Driver, error) {
	return migratepgx.WithInstance(db, &migratepgx.Config{})
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
