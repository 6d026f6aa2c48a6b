//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/clock"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// client returns a client of package claim with its own store, like another process.
func client(t testing.TB, database string) *claim.Client {
	t.Helper()
	c, err := claim.NewClient(opened(t, database, Config{}), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin begins a transaction that is rolled back at the end of the test.
func begin(t testing.TB, p *pgxpool.Pool, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := p.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func TestGateAllowsCommitsOnlyWhileHeld(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, nil)
	k := keeper(t, database)
	l, err := k.TryAcquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	both := func() (native, standard error) {
		t.Helper()
		tx := begin(t, p, pgx.TxOptions{})
		native = Gate(t.Context(), tx, l)
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		other, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		standard = GateSQL(t.Context(), other, l)
		if err := other.Commit(); err != nil {
			t.Error(err)
		}
		return native, standard
	}
	if native, standard := both(); native != nil || standard != nil {
		t.Fatal(native, standard)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if native, standard := both(); !errors.Is(native, backend.ErrLost) || !errors.Is(standard, backend.ErrLost) {
		t.Errorf("gated on a released lease: %v, %v", native, standard)
	}
	elsewhere, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	if l, err = elsewhere.TryAcquire(t.Context(), "jobs/x"); err != nil {
		t.Fatal(err)
	}
	if native, standard := both(); !errors.Is(native, backend.ErrInvalid) || !errors.Is(standard, backend.ErrInvalid) {
		t.Errorf("gated on a lease of another store: %v, %v", native, standard)
	}
}

// The gate compares the whole tenure: holder, token, incarnation, name and namespace.
func TestGateHoldsForOneTenureOnly(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, nil)
	a, b := client(t, database), client(t, database)
	mine, err := a.Claim(t.Context(), request("jobs/x", "me", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	pass := func() error {
		tx := begin(t, p, pgx.TxOptions{})
		defer tx.Rollback(context.Background())
		return GateClaim(t.Context(), tx, mine)
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	if err := a.Extend(t.Context(), mine, time.Minute); err != nil {
		t.Fatal(err)
	}
	if err := pass(); err != nil {
		t.Errorf("after a renewal: %v", err)
	}
	for column, value := range map[string]string{"holder": "'you'", "token": "99", "incarnation": "'" + claim.NewOp().String() + "'", "name": "'jobs/y'", "ns": "'another'"} { // order: irrelevant, each change is undone
		var was string
		if err := p.QueryRow(t.Context(), "SELECT "+column+"::text FROM leasekeeper_lease").Scan(&was); err != nil {
			t.Fatal(err)
		}
		run(t, database, "UPDATE leasekeeper_lease SET "+column+" = "+value)
		says(t, pass(), backend.ErrLost, "jobs/x", "roll the transaction back")
		run(t, database, "UPDATE leasekeeper_lease SET "+column+" = '"+was+"'")
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	if err := b.Revoke(t.Context(), "jobs/x", 0, "for a test", true); err != nil {
		t.Fatal(err)
	}
	says(t, pass(), backend.ErrLost)
	empty := pool(t, databases.PostgreSQL(t).Database(t), nil)
	says(t, GateClaim(t.Context(), begin(t, empty, pgx.TxOptions{}), mine), backend.ErrInvalid)
}

// While a transaction is gated, its lease can be renewed, alone and together with others. A takeover waits until the
// transaction has ended, even if the lease has expired long before.
func TestGatedLeaseIsRenewedAndNotTakenOver(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, nil)
	a, b := client(t, database), client(t, database)
	mine, err := a.Claim(t.Context(), request("jobs/x", "me", 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Claim(t.Context(), request("jobs/y", "me", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	tx := begin(t, p, pgx.TxOptions{})
	if err := GateClaim(t.Context(), tx, mine); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 5 {
		if err := a.Extend(ctx, mine, 100*time.Millisecond); err != nil {
			t.Fatalf("a renewal waits for the transaction: %v", err)
		}
		if err := a.ExtendAll(ctx, []*claim.Lease{mine, second}, func(_ int, err error) {
			if err != nil {
				t.Errorf("a renewal among many: %v", err)
			}
		}); err != nil {
			t.Fatalf("renewals wait for the transaction: %v", err)
		}
	}
	taken := make(chan time.Time, 1)
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := take(t.Context(), b, request("jobs/x", "you", time.Minute)); err != nil {
			t.Error(err)
		}
		taken <- time.Now()
	})
	time.Sleep(400 * time.Millisecond) // four times the lease
	committed := time.Now()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if when := <-taken; when.Before(committed) {
		t.Errorf("the name was taken %v before the transaction ended", committed.Sub(when))
	}
	says(t, GateClaim(t.Context(), begin(t, p, pgx.TxOptions{}), mine), backend.ErrLost)
}

// The gate holds in a transaction whose snapshot is from before a renewal. If the snapshot is from before a change of owner,
// the gate returns ErrContention, and the transaction must be repeated.
func TestGateHoldsInASnapshot(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, nil)
	a := client(t, database)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		mine, err := take(t.Context(), a, request("jobs/x", "me", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		tx, late := begin(t, p, pgx.TxOptions{IsoLevel: level}), begin(t, p, pgx.TxOptions{IsoLevel: level})
		for _, tx := range []pgx.Tx{tx, late} {
			if _, err := tx.Exec(t.Context(), "SELECT 1 FROM leasekeeper_clock"); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // after each of two renewals
			if err := a.Extend(t.Context(), mine, time.Minute); err != nil {
				t.Fatal(err)
			}
			if err := GateClaim(t.Context(), tx, mine); err != nil {
				t.Fatalf("%s: %v", level, err)
			}
		}
		released := make(chan time.Time, 1)
		var all sync.WaitGroup
		all.Go(func() {
			if err := a.Release(t.Context(), mine); err != nil {
				t.Error(err)
			}
			released <- time.Now()
		})
		time.Sleep(100 * time.Millisecond)
		committed := time.Now()
		if err := tx.Commit(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
		if when := <-released; when.Before(committed) {
			t.Errorf("%s: the lease was released %v before the transaction ended", level, committed.Sub(when))
		}
		says(t, GateClaim(t.Context(), late, mine), backend.ErrContention, "repeat the transaction")
		_ = late.Rollback(t.Context())
	}
}

// Takeovers race with gated transactions. No transaction with an older token commits after one with a newer token.
func TestTakeoverRacesGate(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, func(c *pgxpool.Config) { c.MaxConns = 8 })
	run(t, database, "CREATE TABLE ledger (last bigint NOT NULL)", "INSERT INTO ledger VALUES (0)")
	// work is one gated transaction. Between gate and write there is time for a takeover.
	work := func(l *claim.Lease) error {
		tx, err := p.Begin(t.Context())
		if err != nil {
			return err
		}
		defer tx.Rollback(context.Background())
		if err := GateClaim(t.Context(), tx, l); err != nil {
			return err
		}
		time.Sleep(15 * time.Millisecond)
		var last int64
		if err := tx.QueryRow(t.Context(), "SELECT last FROM ledger FOR UPDATE").Scan(&last); err != nil {
			return err
		}
		if backend.Token(last) > l.Token() {
			t.Errorf("token %d writes after token %d", l.Token(), last)
		}
		if _, err := tx.Exec(t.Context(), "UPDATE ledger SET last = $1", int64(l.Token())); err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}
	var mu sync.Mutex
	commits, lost := 0, 0
	var all sync.WaitGroup
	for _, holder := range []string{"a", "b", "c"} {
		c := client(t, database)
		all.Go(func() {
			for range 8 {
				l, err := take(t.Context(), c, request("jobs/x", holder, 12*time.Millisecond)) // which is never renewed
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 { // until another holder has the name
					err := work(l)
					mu.Lock()
					if err == nil {
						commits++
					} else if errors.Is(err, backend.ErrLost) {
						lost++
					} else {
						t.Error(err)
					}
					mu.Unlock()
					if err != nil {
						break
					}
				}
			}
		})
	}
	all.Wait()
	if commits == 0 || lost == 0 {
		t.Errorf("%d transactions were committed and %d refused: takeovers and gates did not race", commits, lost)
	}
}

// In store-clock mode a process on another machine that first reads the name after its expiry takes it at once.
func TestStoreClockFreesTheNameOfADeadHolder(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	store := opened(t, database, Config{StoreClock: true})
	another := func() *claim.Client { // an unknown clock domain, so that no other process shares its clocks
		c, err := claim.NewClient(opened(t, database, Config{StoreClock: true}), claim.Options{Clock: clock.System{}})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	dead, early, late := another(), another(), another()
	if _, err := dead.Claim(t.Context(), request("jobs/x", "me", 2*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := early.Claim(t.Context(), request("jobs/x", "you", time.Minute)); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("before the expiry: %v", err)
	}
	for over := false; !over; {
		time.Sleep(20 * time.Millisecond)
		f, err := store.Get(t.Context(), "jobs/x")
		if err != nil {
			t.Fatal(err)
		}
		over = f.Left < 0
	}
	l, err := late.Claim(t.Context(), request("jobs/x", "you", time.Minute))
	if err != nil {
		t.Fatalf("after the expiry: %v", err)
	}
	p := pool(t, database, nil)
	if err := GateClaim(t.Context(), begin(t, p, pgx.TxOptions{}), l); err != nil {
		t.Error(err)
	}
}

// A gate in another database than the lease would protect nothing, so it is refused.
func TestGateInAnotherDatabaseIsRefused(t *testing.T) {
	server := databases.PostgreSQL(t)
	l, err := client(t, server.Database(t)).Claim(t.Context(), request("jobs/x", "me", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	other := begin(t, pool(t, server.Database(t), nil), pgx.TxOptions{})
	says(t, GateClaim(t.Context(), other, l), backend.ErrInvalid, "another database")
}
