//go:build unix

package gooselease_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	gooselease "github.com/leasekeeper/leasekeeper/contrib/goose"
	"github.com/leasekeeper/leasekeeper/internal/test/migration"
)

const ttl = 15 * time.Second

// bubble runs a test in a bubble of synctest, where time passes only while all goroutines wait.
func bubble(t *testing.T, test func(t *testing.T, store *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, memory.New(memory.WithClock(memory.NewRunningClock()))) })
}

// migrator is a process that migrates a database of its own with one Go migration.
type migrator struct {
	*gooselease.Locker
	keeper   *leasekeeper.Keeper
	client   *memory.Backend
	provider *goose.Provider
}

// newMigrator returns a migrator on a store. lockBy chooses goose's option for the lock.
func newMigrator(t *testing.T, store *memory.Store, step func(ctx context.Context, l *leasekeeper.Lease) error, o ...leasekeeper.Option) migrator {
	t.Helper()
	k, client := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
	m := migrator{Locker: gooselease.NewLocker(k, name, o...), keeper: k, client: client}
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	migration := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(ctx context.Context, _ *sql.Tx) error { return step(ctx, m.Lease(ctx)) }}, nil)
	m.provider, err = goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithLocker(m.Locker), goose.WithGoMigrations(migration), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// up migrates until ctx ends.
func (m migrator) up(ctx context.Context) (int, error) { return up(ctx, m.Locker, m.provider) }

func instantly(context.Context, *leasekeeper.Lease) error { return nil }

// holds fails unless the name is held, or free, in the store.
func holds(t *testing.T, store *memory.Store, held bool) {
	t.Helper()
	if i, err := store.Backend().Get(context.Background(), name); err != nil || i.Held != held {
		t.Errorf("held is %v, %v", i.Held, err)
	}
}

func TestLockNeedsContextOfRun(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		m := newMigrator(t, store, instantly)
		_, err := m.provider.Up(t.Context())
		migration.Is(t, err, leasekeeper.ErrInvalid)
		other := newMigrator(t, store, instantly)
		err = other.Run(t.Context(), func(ctx context.Context) error { _, err := m.provider.Up(ctx); return err })
		migration.Is(t, err, leasekeeper.ErrInvalid)
		if n, err := m.up(t.Context()); n != 1 || err != nil {
			t.Errorf("%d migrations, %v", n, err)
		}
		holds(t, store, false)
	})
}

func TestMigrationHasLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var last leasekeeper.Token
		for range 2 {
			m := newMigrator(t, store, func(ctx context.Context, l *leasekeeper.Lease) error {
				holds(t, store, true)
				if l.Name() != name || l.Token() <= last || l.Check() != nil {
					t.Errorf("the lease is %v", l)
				}
				last = l.Token()
				return nil
			})
			if n, err := m.up(t.Context()); n != 1 || err != nil {
				t.Errorf("%d migrations, %v", n, err)
			}
			if l := m.Lease(t.Context()); l != nil {
				t.Errorf("%v outside of a migration", l)
			}
		}
		if last == 0 {
			t.Error("no migration ran")
		}
	})
}

func TestContextEndsBeforeAnotherMigrates(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		var ended, began time.Time
		var cut func()
		running := make(chan struct{})
		a := newMigrator(t, store, func(ctx context.Context, _ *leasekeeper.Lease) error {
			cut()
			close(running)
			<-ctx.Done()
			ended = time.Now()
			migration.Is(t, context.Cause(ctx), leasekeeper.ErrLost)
			return ctx.Err()
		})
		cut = func() { a.client.Inject(memory.Fault{Kind: memory.LoseRequest}) }
		b := newMigrator(t, store, func(context.Context, *leasekeeper.Lease) error { began = time.Now(); return nil })
		result := make(chan error, 1)
		go func() {
			n, err := a.up(t.Context())
			if n != 0 {
				t.Errorf("applied %d migrations without the lease", n)
			}
			result <- err
		}()
		<-running
		if n, err := b.up(t.Context()); n != 1 || err != nil {
			t.Errorf("%d migrations, %v", n, err)
		}
		migration.Is(t, <-result, leasekeeper.ErrLost)
		if !ended.Before(began) {
			t.Errorf("ended at %v, and another began at %v", ended, began)
		}
	})
}

func TestNameIsKeptWhileMigrationRuns(t *testing.T) {
	for name, end := range map[string]func(m migrator, cancel func()){
		"its context ends": func(_ migrator, cancel func()) { cancel() },
		"its keeper closes": func(m migrator, _ func()) {
			go m.keeper.Shutdown(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				running, returns := make(chan struct{}), make(chan struct{})
				m := newMigrator(t, store, func(ctx context.Context, _ *leasekeeper.Lease) error {
					close(running)
					<-ctx.Done()
					<-returns
					return ctx.Err()
				})
				result := make(chan error, 1)
				go func() {
					_, err := m.up(ctx)
					result <- err
				}()
				<-running
				end(m, cancel)
				time.Sleep(10 * ttl)
				holds(t, store, true)
				close(returns)
				migration.Is(t, <-result, context.Canceled)
				synctest.Wait()
				holds(t, store, false)
			})
		})
	}
}

func TestRunReleasesWhatWasLeftLocked(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		m := newMigrator(t, store, instantly)
		err := m.Run(t.Context(), func(ctx context.Context) error { return m.Lock(ctx, nil) })
		if err != nil {
			t.Error(err)
		}
		holds(t, store, false)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			_ = m.Run(t.Context(), func(ctx context.Context) error {
				if err := m.Lock(ctx, nil); err != nil {
					t.Error(err)
				}
				panic("between Lock and Unlock")
			})
		}()
		holds(t, store, false)
		var late context.Context
		_ = m.Run(t.Context(), func(ctx context.Context) error { late = context.WithoutCancel(ctx); return nil })
		migration.Is(t, m.Lock(late, nil), leasekeeper.ErrInvalid)
		holds(t, store, false)
	})
}

func TestSecondLockOfRunIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		m := newMigrator(t, store, instantly)
		inner := newMigrator(t, store, func(ctx context.Context, _ *leasekeeper.Lease) error {
			_, err := m.provider.Up(ctx)
			migration.Is(t, err, leasekeeper.ErrInvalid)
			return err
		})
		inner.Locker = m.Locker
		_ = m.Run(t.Context(), func(ctx context.Context) error {
			if err := m.Lock(ctx, nil); err != nil {
				t.Error(err)
			}
			migration.Is(t, m.Lock(ctx, nil), leasekeeper.ErrInvalid)
			return m.Unlock(ctx, nil)
		})
		holds(t, store, false)
	})
}

func TestUnconfirmedReleaseIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		m := newMigrator(t, store, instantly)
		m.client.Inject(memory.Fault{Kind: memory.LoseRequest, Op: memory.Release})
		if n, err := m.up(t.Context()); n != 1 || err != nil {
			t.Errorf("%d migrations, %v", n, err)
		}
		holds(t, store, true) // until the TTL has passed
		time.Sleep(ttl)
		holds(t, store, false)
	})
}

func TestUnknownClaimDoesNotMigrate(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		m := newMigrator(t, store, func(context.Context, *leasekeeper.Lease) error { t.Error("it migrates"); return nil })
		remove := m.client.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Claim})
		_, err := m.up(t.Context())
		migration.Is(t, err, leasekeeper.ErrUnknownOutcome)
		remove()
		time.Sleep(2 * ttl)
		holds(t, store, false)
	})
}

func TestMigratorThatDoesNotWaitNamesHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, _ := migration.InMemory(t, store, leasekeeper.WithHolder("other"))
		if _, err := k.Acquire(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		m := newMigrator(t, store, instantly, leasekeeper.NoWait())
		_, err := m.up(t.Context())
		if held, ok := errors.AsType[*leasekeeper.HeldError](err); !ok || held.Holder.ID != "other" {
			t.Errorf("%v", err)
		}
		patient := newMigrator(t, store, instantly)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = patient.up(ctx)
		migration.Is(t, err, context.DeadlineExceeded)
	})
}

func TestSessionLockerIsSameLock(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, _ := migration.InMemory(t, store)
		l := gooselease.NewLocker(k, name)
		db, err := sql.Open("sqlite", ":memory:")
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		db.SetMaxOpenConns(1)
		step := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error { holds(t, store, true); return nil }}, nil)
		p, err := goose.NewProvider(goose.DialectSQLite3, db, nil, goose.WithSessionLocker(l), goose.WithGoMigrations(step))
		if err != nil {
			t.Fatal(err)
		}
		if n, err := up(t.Context(), l, p); n != 1 || err != nil {
			t.Errorf("%d migrations, %v", n, err)
		}
		holds(t, store, false)
	})
}
