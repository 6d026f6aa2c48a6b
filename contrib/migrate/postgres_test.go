//go:build unix

package migratelease_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/leasekeeper/leasekeeper/internal/test/migration"
)

func TestOfTwoMigratorsOneMigrates(t *testing.T) {
	migration.Settings(t, func(t *testing.T, s migration.Setting) {
		results := make([]error, 3)
		var all sync.WaitGroup
		for i := range results {
			k := migration.Keeper(t, s.Lease)
			all.Go(func() {
				d, err := migratelease.Open(t.Context(), k, name, connector(t, s.App), withPgx)
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
		if n := migration.Scan[int](t, migration.Open(t, s.Direct), "SELECT count(*) FROM ran"); n != 1 {
			t.Errorf("the first migration ran %d times", n)
		}
	})
}

// hanging is a driver that hangs before the first migration.
type hanging struct{ database.Driver }

func (hanging) SetVersion(int, bool) error {
	fmt.Println(migration.Begun)
	select {}
}

// runChild locks, and hangs before the first migration.
func runChild(store, url string) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, store, leasekeeper.WithTTL(migration.ChildTTL))
	check(err)
	config, err := pgx.ParseConfig(url + execMode)
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
	migration.Settings(t, func(t *testing.T, s migration.Setting) {
		d, err := migratelease.Open(t.Context(), migration.Keeper(t, s.Lease), name, connector(t, s.App), withPgx)
		if err != nil {
			t.Fatal(err)
		}
		m := migrator(t, d, "INSERT INTO ran VALUES (1)")
		migration.AfterKill(t, child(s), func() {
			if err := m.Up(); err != nil {
				t.Error(err)
			}
		})
		if n := migration.Scan[int](t, migration.Open(t, s.Direct), "SELECT count(*) FROM ran"); n != 1 {
			t.Errorf("the migration ran %d times", n)
		}
	})
}

func TestLostLeaseEndsStatementAndLeavesVersionDirty(t *testing.T) {
	migration.SettingsInMemory(t, func(t *testing.T, s migration.Setting) {
		watch := migration.Open(t, s.Direct)
		store := memory.New()
		k, client := migration.InMemory(t, store, leasekeeper.WithTTL(3*time.Second))
		d, err := migratelease.Open(t.Context(), k, name, connector(t, s.App), withPgx)
		if err != nil {
			t.Fatal(err)
		}
		m := migrator(t, d, "CREATE TABLE late (id int); "+migration.Sleeping, "CREATE TABLE later (id int)")
		result := make(chan error, 1)
		go func() { result <- m.Up() }()
		migration.Eventually(t, "the migration runs", func() bool { return migration.Scan[int](t, watch, migration.CountSleeping) == 1 })
		client.Inject(memory.Fault{Kind: memory.LoseRequest})
		migration.Is(t, <-result, leasekeeper.ErrLost)
		migration.Eventually(t, "the server stops the statement", func() bool { return migration.Scan[int](t, watch, migration.CountSleeping) == 0 })
		if n := migration.Scan[int](t, watch, "SELECT count(*) FROM pg_class WHERE relname IN ('late', 'later')"); n != 0 {
			t.Errorf("%d of the tables exist", n)
		}
		next, _ := migration.InMemory(t, store, leasekeeper.WithTTL(3*time.Second))
		if d, err = migratelease.Open(t.Context(), next, name, connector(t, s.App), withPgx); err != nil {
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

// Other clients of the pooler use the sessions meanwhile, so golang-migrate's own lock would be left in one of them.
func TestOpenBehindPgBouncerLeavesNoSessionLock(t *testing.T) {
	server := databases.PostgreSQL(t)
	direct := server.Database(t)
	bouncer := server.NewPgBouncer(t)
	busy := migration.Open(t, bouncer.Before(t, direct)+execMode)
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
	k, _ := migration.InMemory(t, memory.New())
	for range 20 {
		d, err := migratelease.Open(t.Context(), k, name, connector(t, bouncer.Before(t, direct)), withPgx)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := migration.Scan[int](t, migration.Open(t, direct), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); n != 0 {
			t.Fatalf("%d advisory locks are left", n)
		}
	}
}
