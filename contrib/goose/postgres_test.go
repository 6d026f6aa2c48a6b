//go:build unix

package gooselease_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"strings"
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
	settings(t, func(t *testing.T, s setting) {
		steps := files("INSERT INTO ran VALUES (1)", "SELECT pg_sleep(0.3)", "CREATE TABLE app (id int)")
		var applied [3]int
		var all sync.WaitGroup
		for i := range applied {
			l := gooselease.NewLocker(keeper(t, s.lease), name)
			p := provider(t, open(t, s.app), steps, goose.WithLocker(l))
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
		if n := scan[int](t, open(t, s.direct), "SELECT count(*) FROM ran"); n != 1 {
			t.Errorf("the first migration ran %d times", n)
		}
	})
}

// The environment variables of a child process, which migrates until it is killed.
const (
	childStore    = "GOOSELEASE_TEST_STORE"
	childDatabase = "GOOSELEASE_TEST_DATABASE"
)

const childTTL = 3 * time.Second

// runChild migrates, says so when it holds the lock, and then hangs in the migration.
func runChild() {
	ctx := context.Background()
	k, err := leasekeeper.Open(ctx, os.Getenv(childStore), leasekeeper.WithTTL(childTTL))
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("pgx", os.Getenv(childDatabase)+"&default_query_exec_mode=exec")
	if err != nil {
		panic(err)
	}
	l := gooselease.NewLocker(k, name)
	hang := goose.NewGoMigration(1, &goose.GoFunc{RunDB: func(context.Context, *sql.DB) error {
		fmt.Println("begun")
		select {}
	}}, nil)
	p, err := goose.NewProvider(goose.DialectPostgres, db, nil, goose.WithLocker(l), goose.WithGoMigrations(hang))
	if err != nil {
		panic(err)
	}
	panic(l.Run(ctx, func(ctx context.Context) error { _, err := p.Up(ctx); return err }))
}

func TestNextMigratorTakesOverFromKilledOne(t *testing.T) {
	settings(t, func(t *testing.T, s setting) {
		l := gooselease.NewLocker(keeper(t, s.lease), name)
		p := provider(t, open(t, s.app), files("INSERT INTO ran VALUES (1)"), goose.WithLocker(l))
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
		n, err := up(t.Context(), l, p)
		if n != 1 || err != nil {
			t.Errorf("applied %d migrations, %v", n, err)
		}
		if early := time.Until(earliest); early > 0 {
			t.Errorf("took over %v before the TTL had passed", early)
		}
	})
}

func TestLostLeaseEndsStatement(t *testing.T) {
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
			l := gooselease.NewLocker(k, name)
			p := provider(t, open(t, app), files("CREATE TABLE late (id int); SELECT pg_sleep(3600)", "CREATE TABLE later (id int)"), goose.WithLocker(l))
			result := make(chan error, 1)
			go func() {
				_, err := up(t.Context(), l, p)
				result <- err
			}()
			const sleeping = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg\\_sleep(3600)%' AND pid <> pg_backend_pid()"
			eventually(t, "the migration runs", func() bool { return scan[int](t, watch, sleeping) == 1 })
			client.Inject(memory.Fault{Kind: memory.LoseRequest})
			is(t, <-result, leasekeeper.ErrLost)
			eventually(t, "the server stops the statement", func() bool { return scan[int](t, watch, sleeping) == 0 })
			if n := scan[int](t, watch, "SELECT count(*) FROM pg_class WHERE relname IN ('late', 'later')"); n != 0 {
				t.Errorf("%d of the tables exist", n)
			}
		})
	}
}

// A holder finds out about a lease that was ended by force at its next renewal only. Until then it is like a process
// that was paused: it goes on, and nothing but the gate refuses its transaction.
func TestGateRefusesLateCommit(t *testing.T) {
	for _, gated := range []bool{true, false} {
		t.Run(fmt.Sprint("gated ", gated), func(t *testing.T) {
			s := setting{direct: databases.PostgreSQL(t).Database(t)}
			k := keeper(t, s.direct)
			operator, err := backend.Open(t.Context(), s.direct)
			if err != nil {
				t.Fatal(err)
			}
			defer operator.Close(context.Background())
			revoker, err := backend.Can[backend.Revoker](operator)
			if err != nil {
				t.Fatal(err)
			}
			l := gooselease.NewLocker(k, name)
			db := open(t, s.direct)
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
				is(t, err, leasekeeper.ErrLost)
				want = 0
			}
			if made := scan[int](t, open(t, s.direct), "SELECT count(*) FROM pg_class WHERE relname = 'late'"); made != want {
				t.Errorf("%d tables after %d migrations, %v", made, n, err)
			}
		})
	}
}

func TestGateLetsHolderMigrate(t *testing.T) {
	settings(t, func(t *testing.T, s setting) {
		if strings.HasPrefix(s.lease, "sqlite:") {
			t.Skip("a gate needs the lease in the migrated database")
		}
		l := gooselease.NewLocker(keeper(t, s.lease), name)
		versions, err := database.NewStore(goose.DialectPostgres, goose.DefaultTablename)
		if err != nil {
			t.Fatal(err)
		}
		all := fstest.MapFS{"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (id int);\n-- +goose Down\nDROP TABLE a;\n")}}
		p, err := goose.NewProvider(goose.DialectCustom, open(t, s.app), all, goose.WithLocker(l), goose.WithStore(l.Gated(versions, postgres.GateSQL)))
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
