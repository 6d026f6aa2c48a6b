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

// client returns one of package claim, as if of a process of its own.
func client(t testing.TB, database string) *claim.Client {
	t.Helper()
	c, err := claim.NewClient(opened(t, database, Config{}), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin begins a transaction that is rolled back with the test.
func begin(t testing.TB, p *pgxpool.Pool, o pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := p.BeginTx(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func TestGate(t *testing.T) {
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
		t.Errorf("with a lease that was released: %v, %v", native, standard)
	}
	elsewhere, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close(context.Background())
	if l, err = elsewhere.TryAcquire(t.Context(), "jobs/x"); err != nil {
		t.Fatal(err)
	}
	if native, standard := both(); !errors.Is(native, backend.ErrInvalid) || !errors.Is(standard, backend.ErrInvalid) {
		t.Errorf("with a lease that is elsewhere: %v, %v", native, standard)
	}
}

// It is the tenure that is gated, not the name, the holder or the token.
func TestGateIsForOneTenure(t *testing.T) {
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
	for column, value := range map[string]string{"holder": "'you'", "token": "99", "incarnation": "'" + claim.NewOp().String() + "'", "name": "'jobs/y'", "ns": "'another'"} { // order: each for itself
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

// While a transaction is gated its lease is renewed, alone and among many, again and again. A takeover waits
// until the transaction has ended, though the lease is long over.
func TestRenewalsFlowAndTakeoversWait(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, nil)
	a, b := client(t, database), client(t, database)
	mine, err := a.Claim(t.Context(), request("jobs/x", "me", 100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	beside, err := a.Claim(t.Context(), request("jobs/y", "me", time.Minute))
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
		if err := a.ExtendAll(ctx, []*claim.Lease{mine, beside}, func(_ int, err error) {
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

// A transaction with a snapshot from before a renewal is gated all the same. With one from before a takeover it has
// to be repeated, and says so.
func TestGateInASnapshot(t *testing.T) {
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
		for range 2 { // after a renewal, and once more
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

// Takeovers race with gated transactions; none of an older token commits after one of a newer.
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
				l, err := take(t.Context(), c, request("jobs/x", holder, 12*time.Millisecond)) // and never renews
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 { // until the name is somebody else's
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
		t.Errorf("%d transactions were committed, %d refused: there was no race", commits, lost)
	}
}

// In store-clock mode who comes later, on another machine, takes the name of a dead holder at once.
func TestStoreClockFreesTheDead(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	store := opened(t, database, Config{StoreClock: true})
	another := func() *claim.Client { // its domain is unknown, so that nobody shares its clocks
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
		t.Errorf("while it lasts: %v", err)
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
		t.Fatalf("after it has ended: %v", err)
	}
	p := pool(t, database, nil)
	if err := GateClaim(t.Context(), begin(t, p, pgx.TxOptions{}), l); err != nil {
		t.Error(err)
	}
}

// A gate in another database than the lease would be none.
func TestGateInAnotherDatabase(t *testing.T) {
	server := databases.PostgreSQL(t)
	l, err := client(t, server.Database(t)).Claim(t.Context(), request("jobs/x", "me", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	other := begin(t, pool(t, server.Database(t), nil), pgx.TxOptions{})
	says(t, GateClaim(t.Context(), other, l), backend.ErrInvalid, "another database")
}
