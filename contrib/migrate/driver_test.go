//go:build unix

package migratelease_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/stub"
	databasetesting "github.com/golang-migrate/migrate/v4/database/testing"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	migratelease "github.com/leasekeeper/leasekeeper/contrib/migrate"
	"github.com/leasekeeper/leasekeeper/internal/test/migration"
)

const ttl = 15 * time.Second

// bubble runs a test in a bubble of synctest, where time passes only while all goroutines wait.
func bubble(t *testing.T, test func(t *testing.T, store *memory.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, memory.New(memory.WithClock(memory.NewRunningClock()))) })
}

// fake is a driver whose migrations run a function. It fails the test if its own lock is used.
type fake struct {
	*stub.Stub
	t     *testing.T
	step  func(migration string) // nil does nothing
	mu    sync.Mutex
	calls int // of Run and SetVersion
}

func newFake(t *testing.T, step func(string)) *fake {
	t.Helper()
	d, err := stub.WithInstance(nil, &stub.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &fake{Stub: d.(*stub.Stub), t: t, step: step}
}

func (f *fake) Lock() error   { f.t.Error("the driver's own lock is used"); return nil }
func (f *fake) Unlock() error { f.t.Error("the driver's own lock is used"); return nil }

func (f *fake) SetVersion(version int, dirty bool) error {
	f.count()
	return f.Stub.SetVersion(version, dirty)
}

func (f *fake) Run(migration io.Reader) error {
	f.count()
	text, err := io.ReadAll(migration)
	if err == nil && f.step != nil {
		f.step(string(text))
	}
	return err
}

func (f *fake) count() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
}

// holds fails unless the name is held, or free, in the store.
func holds(t *testing.T, store *memory.Store, held bool) {
	t.Helper()
	if i, err := store.Backend().Get(context.Background(), name); err != nil || i.Held != held {
		t.Errorf("held is %v, %v", i.Held, err)
	}
}

func TestDriverLocksAsDriversDo(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, _ := migration.InMemory(t, store)
		d := migratelease.New(t.Context(), k, name, newFake(t, nil))
		databasetesting.TestNilVersion(t, d)
		databasetesting.TestLockAndUnlock(t, d)
		migration.Is(t, d.Unlock(), database.ErrNotLocked)
		holds(t, store, false)
	})
}

func TestCallsNeedLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, _ := migration.InMemory(t, store)
		inner := newFake(t, nil)
		d := migratelease.New(t.Context(), k, name, inner)
		migration.Is(t, d.Run(strings.NewReader("")), database.ErrNotLocked)
		migration.Is(t, d.SetVersion(1, true), database.ErrNotLocked)
		migration.Is(t, d.SetVersion(1, false), database.ErrNotLocked)
		migration.Is(t, d.Drop(), database.ErrNotLocked)
		if v, dirty, err := d.Version(); v != database.NilVersion || dirty || err != nil {
			t.Errorf("version %d, dirty is %v, %v", v, dirty, err)
		}
		if inner.calls != 0 || len(inner.MigrationSequence) != 0 {
			t.Error("the wrapped driver was called")
		}
		if d.Lease() != nil {
			t.Error("there is a lease")
		}
	})
}

func TestMigrateRunsEverythingUnderLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, _ := migration.InMemory(t, store)
		var d *migratelease.Driver
		ran := 0
		inner := newFake(t, func(string) {
			ran++
			holds(t, store, true)
			if l := d.Lease(); l == nil || l.Check() != nil {
				t.Errorf("the lease is %v", l)
			}
		})
		d = migratelease.New(t.Context(), k, name, inner)
		m := migrator(t, d, "a", "b")
		if err := m.Up(); err != nil || ran != 2 {
			t.Errorf("%d migrations, %v", ran, err)
		}
		migration.Is(t, m.Up(), migrate.ErrNoChange)
		if err := errors.Join(m.Force(1), m.Drop()); err != nil {
			t.Error(err)
		}
		holds(t, store, false)
	})
}

func TestLostLeaseStopsMigrations(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, client := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		inner := newFake(t, func(string) {
			client.Inject(memory.Fault{Kind: memory.LoseRequest})
			time.Sleep(ttl)
		})
		m := migrator(t, migratelease.New(t.Context(), k, name, inner), "a", empty)
		migration.Is(t, m.Up(), leasekeeper.ErrLost)
		if inner.calls != 2 || inner.CurrentVersion != 1 || !inner.IsDirty {
			t.Errorf("%d calls, version %d, dirty is %v", inner.calls, inner.CurrentVersion, inner.IsDirty)
		}
	})
}

func TestEndOfContextLetsMigrationFinish(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		k, _ := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		inner := newFake(t, func(string) {
			cancel()
			time.Sleep(10 * ttl)
			holds(t, store, true)
		})
		m := migrator(t, migratelease.New(ctx, k, name, inner), "a", empty)
		migration.Is(t, m.Up(), context.Canceled)
		if inner.CurrentVersion != 1 || inner.IsDirty {
			t.Errorf("version %d, dirty is %v", inner.CurrentVersion, inner.IsDirty)
		}
		holds(t, store, false)
		migration.Is(t, m.Up(), context.Canceled) // it does not even lock
	})
}

func TestNameIsKeptWhileMigrationRuns(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		running, returns := make(chan struct{}), make(chan struct{})
		k, _ := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		d := migratelease.New(t.Context(), k, name, newFake(t, func(string) {
			close(running)
			<-returns
		}))
		m := migrator(t, d, "a", empty)
		result := make(chan error, 1)
		go func() { result <- m.Up() }()
		<-running
		go d.Close()
		go k.Shutdown(context.Background())
		go d.Unlock()
		time.Sleep(10 * ttl)
		holds(t, store, true)
		close(returns)
		if err := <-result; err == nil {
			t.Error("a migration began after the end")
		}
		synctest.Wait()
		holds(t, store, false)
	})
}

func TestAbandonedWaitDoesNotKeepName(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		other, _ := migration.InMemory(t, store)
		l, err := other.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		k, _ := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		m := migrator(t, migratelease.New(t.Context(), k, name, newFake(t, nil)), "a")
		m.LockTimeout = time.Minute
		migration.Is(t, m.Up(), migrate.ErrLockTimeout)
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		holds(t, store, true) // by the Lock for which Migrate no longer waits
		time.Sleep(10 * time.Second)
		holds(t, store, false)
		if err := m.Up(); err != nil {
			t.Error(err)
		}
	})
}

func TestLaterLockEndsEarlierWait(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		other, _ := migration.InMemory(t, store)
		l, err := other.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		k, _ := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		d := migratelease.New(t.Context(), k, name, newFake(t, nil))
		m := migrator(t, d, "a")
		m.LockTimeout = time.Minute
		migration.Is(t, m.Up(), migrate.ErrLockTimeout)
		m.LockTimeout = time.Hour
		result := make(chan error, 1)
		go func() { result <- m.Up() }()
		synctest.Wait()
		began := time.Now()
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-result; err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("it migrated %v after the release", waited)
		}
		holds(t, store, false)
	})
}

func TestCloseEndsWait(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		other, _ := migration.InMemory(t, store)
		if _, err := other.Acquire(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		k, _ := migration.InMemory(t, store)
		d := migratelease.New(t.Context(), k, name, newFake(t, nil))
		result := make(chan error, 1)
		go func() { result <- d.Lock() }()
		synctest.Wait()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		migration.Is(t, <-result, leasekeeper.ErrClosed)
		migration.Is(t, d.Lock(), leasekeeper.ErrClosed)
	})
}

func TestDriverThatDoesNotWaitNamesHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		other, _ := migration.InMemory(t, store, leasekeeper.WithHolder("other"))
		if _, err := other.Acquire(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		k, _ := migration.InMemory(t, store)
		m := migrator(t, migratelease.New(t.Context(), k, name, newFake(t, nil), leasekeeper.NoWait()), "a")
		if held, ok := errors.AsType[*leasekeeper.HeldError](m.Up()); !ok || held.Holder.ID != "other" {
			t.Error("no holder is named")
		}
	})
}

func TestUnconfirmedReleaseIsNoFailure(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, client := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		m := migrator(t, migratelease.New(t.Context(), k, name, newFake(t, nil)), "a")
		client.Inject(memory.Fault{Kind: memory.LoseRequest, Op: memory.Release})
		if err := m.Up(); err != nil {
			t.Error(err)
		}
		holds(t, store, true) // until the TTL has passed
		time.Sleep(ttl)
		holds(t, store, false)
	})
}

func TestUnknownClaimDoesNotMigrate(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, client := migration.InMemory(t, store, leasekeeper.WithTTL(ttl))
		inner := newFake(t, nil)
		m := migrator(t, migratelease.New(t.Context(), k, name, inner), "a")
		remove := client.Inject(memory.Fault{Kind: memory.LoseAnswer, Op: memory.Claim})
		migration.Is(t, m.Up(), leasekeeper.ErrUnknownOutcome)
		if inner.calls != 0 {
			t.Error("it migrated")
		}
		remove()
		time.Sleep(2 * ttl)
		holds(t, store, false)
	})
}

func TestOpenOfURLKeepsLease(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		k, _ := migration.InMemory(t, store)
		opened, err := migratelease.New(t.Context(), k, name, newFake(t, nil)).Open("stub://")
		if err != nil {
			t.Fatal(err)
		}
		if err := opened.Lock(); err != nil {
			t.Error(err)
		}
		holds(t, store, true)
		if err := opened.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
