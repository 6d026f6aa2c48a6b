//go:build unix

package gooselease_test

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
	gooselease "github.com/leasekeeper/leasekeeper/contrib/goose"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
	"github.com/leasekeeper/leasekeeper/internal/test/migration"
)

// files returns one migration for each text.
func files(texts ...string) fstest.MapFS {
	all := fstest.MapFS{}
	for i, text := range texts {
		all[fmt.Sprintf("%05d_step.sql", i+1)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" + text + ";\n")}
	}
	return all
}

func TestOfTwoMigratorsOneMigrates(t *testing.T) {
	migration.Settings(t, func(t *testing.T, s migration.Setting) {
		steps := files("INSERT INTO ran VALUES (1)", "SELECT pg_sleep(0.3)", "CREATE TABLE app (id int)")
		var applied [3]int
		var all sync.WaitGroup
		for i := range applied {
			l := gooselease.NewLocker(migration.Keeper(t, s.Lease), name)
			p := provider(t, open(t, s.App), steps, goose.WithLocker(l))
			all.Go(func() {
				var err error
				if applied[i], err = up(t.Context(), l, p); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if sum := applied[0] + applied[1] + applied[2]; sum != 3 || max(applied[0], applied[1], applied[2]) != 3 {
			t.Errorf("applied %v migrations, and not 3 by one migrator", applied)
		}
		if n := migration.Scan[int](t, open(t, s.Direct), "SELECT count(*) FROM ran"); n != 1 {
			t.Errorf("the first migration ran %d times", n)
		}
	})
}

// runChild migrates, and hangs in the migration.
func runChild(store, url string) {
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, store, leasekeeper.WithTTL(migration.ChildTTL))
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("pgx", url+execMode)
	if err != nil {
		panic(err)
	}
	l := gooselease.NewLocker(k, name)
	hang := goose.NewGoMigration(1, &goose.GoFunc{RunDB: func(context.Context, *sql.DB) error {
		fmt.Println(migration.Begun)
		select {}
	}}, nil)
	p, err := goose.NewProvider(goose.DialectPostgres, db, nil, goose.WithLocker(l), goose.WithGoMigrations(hang))
	if err != nil {
		panic(err)
	}
	panic(l.Run(ctx, func(ctx context.Context) error { _, err := p.Up(ctx); return err }))
}

func TestNextMigratorTakesOverFromKilledOne(t *testing.T) {
	migration.Settings(t, func(t *testing.T, s migration.Setting) {
		l := gooselease.NewLocker(migration.Keeper(t, s.Lease), name)
		p := provider(t, open(t, s.App), files("INSERT INTO ran VALUES (1)"), goose.WithLocker(l))
		migration.AfterKill(t, child(s), func() {
			if n, err := up(t.Context(), l, p); n != 1 || err != nil {
				t.Errorf("applied %d migrations, %v", n, err)
			}
		})
	})
}

func TestLostLeaseEndsStatement(t *testing.T) {
	migration.SettingsInMemory(t, func(t *testing.T, s migration.Setting) {
		watch := open(t, s.Direct)
		store := memory.New()
		k, client := migration.InMemory(t, store, leasekeeper.WithTTL(3*time.Second))
		l := gooselease.NewLocker(k, name)
		p := provider(t, open(t, s.App), files("CREATE TABLE late (id int); "+migration.Sleeping, "CREATE TABLE later (id int)"), goose.WithLocker(l))
		result := make(chan error, 1)
		go func() {
			_, err := up(t.Context(), l, p)
			result <- err
		}()
		migration.Eventually(t, "the migration runs", func() bool { return migration.Scan[int](t, watch, migration.CountSleeping) == 1 })
		client.Inject(memory.Fault{Kind: memory.LoseRequest})
		migration.Is(t, <-result, leasekeeper.ErrLost)
		migration.Eventually(t, "the server stops the statement", func() bool { return migration.Scan[int](t, watch, migration.CountSleeping) == 0 })
		if n := migration.Scan[int](t, watch, "SELECT count(*) FROM pg_class WHERE relname IN ('late', 'later')"); n != 0 {
			t.Errorf("%d of the tables exist", n)
		}
	})
}

// A holder finds out about a lease that was ended by force at its next renewal only. Until then it is like a process
// that was paused: it goes on, and nothing but the gate refuses its transaction.
func TestGateRefusesLateCommit(t *testing.T) {
	for _, gated := range []bool{true, false} {
		t.Run(fmt.Sprint("gated ", gated), func(t *testing.T) {
			direct := databases.PostgreSQL(t).Database(t)
			k := migration.Keeper(t, direct)
			operator, err := backend.Open(t.Context(), direct)
			if err != nil {
				t.Fatal(err)
			}
			defer operator.Close(context.Background())
			revoker, err := backend.Can[backend.Revoker](operator)
			if err != nil {
				t.Fatal(err)
			}
			l := gooselease.NewLocker(k, name)
			db := open(t, direct)
			versions, err := database.NewStore(goose.DialectPostgres, goose.DefaultTablename)
			if err != nil {
				t.Fatal(err)
			}
			if gated {
				versions = l.Gated(versions, postgres.GateSQL)
			}
			late := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.Exec("CREATE TABLE late (id int)"); err != nil {
					return err
				}
				return revoker.Revoke(ctx, name, l.Lease(ctx).Token(), "test", true)
			}}, nil)
			p, err := goose.NewProvider(goose.DialectCustom, db, nil, goose.WithLocker(l), goose.WithStore(versions), goose.WithGoMigrations(late))
			if err != nil {
				t.Fatal(err)
			}
			n, err := up(t.Context(), l, p)
			want := 1
			if gated {
				migration.Is(t, err, leasekeeper.ErrLost)
				want = 0
			}
			if made := migration.Scan[int](t, open(t, direct), "SELECT count(*) FROM pg_class WHERE relname = 'late'"); made != want {
				t.Errorf("%d tables after %d migrations, %v", made, n, err)
			}
		})
	}
}

func TestGateLetsHolderMigrate(t *testing.T) {
	migration.SettingsWithGate(t, func(t *testing.T, s migration.Setting) {
		l := gooselease.NewLocker(migration.Keeper(t, s.Lease), name)
		versions, err := database.NewStore(goose.DialectPostgres, goose.DefaultTablename)
		if err != nil {
			t.Fatal(err)
		}
		all := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (id int);\n-- +goose Down\nDROP TABLE a;\n")}}
		p, err := goose.NewProvider(goose.DialectCustom, open(t, s.App), all, goose.WithLocker(l), goose.WithStore(l.Gated(versions, postgres.GateSQL)))
		if err != nil {
			t.Fatal(err)
		}
		if pending, err := p.HasPending(t.Context()); !pending || err != nil { // it creates the table of versions without the lock
			t.Errorf("pending is %v, %v", pending, err)
		}
		if n, err := up(t.Context(), l, p); n != 1 || err != nil {
			t.Errorf("applied %d migrations, %v", n, err)
		}
		if err := l.Run(t.Context(), func(ctx context.Context) error { _, err := p.Down(ctx); return err }); err != nil {
			t.Error(err)
		}
		if v, _, err := p.GetVersions(t.Context()); v != 0 || err != nil {
			t.Errorf("version %d, %v", v, err)
		}
	})
}
