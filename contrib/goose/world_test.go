//go:build unix

package gooselease_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"go.uber.org/goleak"

	_ "github.com/leasekeeper/leasekeeper/backend/postgres"
	_ "github.com/leasekeeper/leasekeeper/backend/sqlite"
	gooselease "github.com/leasekeeper/leasekeeper/contrib/goose"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/migration"
)

// name is the name of the migration lock in all tests.
const name = migration.Lock

// The environment variables of a child process, which migrates until it is killed.
const (
	childStore    = "GOOSELEASE_TEST_STORE"
	childDatabase = "GOOSELEASE_TEST_DATABASE"
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
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		code = 1
	}
	os.Exit(code)
}

// execMode lets no prepared statement outlive its transaction, as poolers need it.
const execMode = "&default_query_exec_mode=exec"

// open opens a database for a provider.
func open(t testing.TB, url string) *sql.DB {
	t.Helper()
	return migration.Open(t, url+execMode)
}

// provider returns a real provider of goose.
func provider(t testing.TB, db *sql.DB, files fstest.MapFS, o ...goose.ProviderOption) *goose.Provider {
	t.Helper()
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, append(o, goose.WithDisableGlobalRegistry(true))...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// up migrates, and returns how many migrations were applied.
func up(ctx context.Context, l *gooselease.Locker, p *goose.Provider) (n int, err error) {
	err = l.Run(ctx, func(ctx context.Context) error {
		results, err := p.Up(ctx)
		n = len(results)
		return err
	})
	return n, err
}
