//go:build unix

package migratelease_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	migratelease "github.com/leasekeeper/leasekeeper/contrib/migrate"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestOfTwoMigratorsOneMigrates(t *testing.T) {
	settings(t, func(t *testing.T, s setting) {
		results := make([]error, 3)
		var all sync.WaitGroup
		for i := range results {
			k := keeper(t, s.lease)
			all.Go(func() {
				d, err := migratelease.Open(t.Context(), k, name, connector(t, s.app), withPgx)
				if err != nil {
					results[i] = err
					return
				}
				m := migrator(t, d, "INSERT INTO ran VALUES (1)", "SELECT pg_sleep(0.3)", "CREATE TABLE app (id int)")
				results[i] = m.Up()
			})
		}
		all.Wait()
		migrated := 0
		for _, err := range results {
			switch {
			case err == nil:
				migrated++
			case !errors.Is(err, migrate.ErrNoChange):
				t.Error(err)
			}
		}
		if migrated != 1 {
			t.Errorf("%d migrators migrated", migrated)
		}
		if n := scan[int](t, open(t, s.direct), "SELECT count(*) FROM ran"); n != 1 {
			t.Errorf("the first migration ran %d times", n)
		}
	})
}

// The environment variables of a child process, which migrates until it is killed.
const (
	childStore    = "MIGRATELEASE_TEST_STORE"
	childDatabase = "MIGRATELEASE_TEST_DATABASE"
)

const childTTL = 3 * time.Second

// hanging is a driver that hangs before the first migration.
type hanging struct{ database.Driver }

func (hanging) SetVersion(int, bool) error {
	fmt.Println("begun")
	select {}
}

// runChild locks, says so, and hangs.
func runChild() {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, os.Getenv(childStore), leasekeeper.WithTTL(childTTL))
	check(err)
	config, err := pgx.ParseConfig(os.Getenv(childDatabase) + "&default_query_exec_mode=exec")
	check(err)
	inner, err := withPgx(stdlib.OpenDB(*config))
	check(err)
	source, err := iofs.New(fstest.MapFS{"1_step.up.sql": {}}, ".")
	check(err)
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", migratelease.New(ctx, k, name, hanging{inner}))
	check(err)
	panic(m.Up())
}

func TestNextMigratorTakesOverFromKilledOne(t *testing.T) {
	settings(t, func(t *testing.T, s setting) {
		d, err := migratelease.Open(t.Context(), keeper(t, s.lease), name, connector(t, s.app), withPgx)
		if err != nil {
			t.Fatal(err)
		}
		m := migrator(t, d, "INSERT INTO ran VALUES (1)")
		earliest := time.Now().Add(childTTL) // the child's lease begins later
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childStore+"="+s.lease, childDatabase+"="+s.app)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err == nil {
			err = child.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "begun\n" {
			t.Fatalf("the child wrote %q, %v", line, err)
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait() // it was killed
		if err := m.Up(); err != nil {
			t.Error(err)
		}
		if early := time.Until(earliest); early > 0 {
			t.Errorf("took over %v before the TTL had passed", early)
		}
		if n := scan[int](t, open(t, s.direct), "SELECT count(*) FROM ran"); n != 1 {
			t.Errorf("the migration ran %d times", n)
		}
	})
}

func TestLostLeaseEndsStatementAndLeavesVersionDirty(t *testing.T) {
	for _, bouncer := range []bool{false, true} {
		t.Run(fmt.Sprint("pgbouncer ", bouncer), func(t *testing.T) {
			server := databases.PostgreSQL(t)
			direct := server.Database(t)
			app := direct
			if bouncer {
				app = server.NewPgBouncer(t).Before(t, direct)
			}
			watch := open(t, direct)
			store := memory.New()
			k, client := inMemory(t, store, leasekeeper.WithTTL(500*time.Millisecond))
			d, err := migratelease.Open(t.Context(), k, name, connector(t, app), withPgx)
			if err != nil {
				t.Fatal(err)
			}
			m := migrator(t, d, "CREATE TABLE late (id int); SELECT pg_sleep(3600)", "CREATE TABLE later (id int)")
			result := make(chan error, 1)
			go func() { result <- m.Up() }()
			const sleeping = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg\\_sleep(3600)%' AND pid <> pg_backend_pid()"
			eventually(t, "the migration runs", func() bool { return scan[int](t, watch, sleeping) == 1 })
			client.Inject(memory.Fault{Kind: memory.LoseRequest})
			is(t, <-result, leasekeeper.ErrLost)
			eventually(t, "the server stops the statement", func() bool { return scan[int](t, watch, sleeping) == 0 })
			if n := scan[int](t, watch, "SELECT count(*) FROM pg_class WHERE relname IN ('late', 'later')"); n != 0 {
				t.Errorf("%d of the tables exist", n)
			}
			next, _ := inMemory(t, store, leasekeeper.WithTTL(500*time.Millisecond))
			if d, err = migratelease.Open(t.Context(), next, name, connector(t, app), withPgx); err != nil {
				t.Fatal(err)
			}
			m = migrator(t, d, "CREATE TABLE late (id int)", "CREATE TABLE later (id int)")
			if dirty, ok := errors.AsType[migrate.ErrDirty](m.Up()); !ok || dirty.Version != 1 {
				t.Errorf("version %d is dirty: %v", dirty.Version, ok)
			}
			if err := errors.Join(m.Force(database.NilVersion), m.Up()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Other clients of the pooler use the sessions meanwhile, so golang-migrate's own lock would be left in one of them.
func TestOpenBehindPgBouncerLeavesNoSessionLock(t *testing.T) {
	server := databases.PostgreSQL(t)
	direct := server.Database(t)
	bouncer := server.NewPgBouncer(t)
	busy := open(t, bouncer.Before(t, direct)+"&default_query_exec_mode=exec")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range 3 {
		all.Go(func() {
			for ctx.Err() == nil {
				_, _ = busy.ExecContext(ctx, "SELECT pg_sleep(0.001)")
			}
		})
	}
	k, _ := inMemory(t, memory.New())
	for range 20 {
		d, err := migratelease.Open(t.Context(), k, name, connector(t, bouncer.Before(t, direct)), withPgx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := scan[int](t, open(t, direct), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
			t.Fatalf("%d advisory locks are left", n)
		}
	}
}
