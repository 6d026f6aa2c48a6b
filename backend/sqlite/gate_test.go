package sqlite

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/claim"
)

// client returns a client of package claim, as if of a process of its own.
func client(t testing.TB, path string) *claim.Client {
	t.Helper()
	c, err := claim.NewClient(opened(t, path, Config{}), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin begins a transaction that is rolled back when the test ends.
func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func TestGateAllowsCommitsOnlyWhileHeld(t *testing.T) {
	path := newPath(t)
	db := raw(t, path, durable)
	k, err := leasekeeper.Open(t.Context(), "sqlite:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	l, err := k.TryAcquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	run(t, db, "CREATE TABLE work (done TEXT)")
	tx := begin(t, db)
	if err := Gate(t.Context(), tx, l); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec("INSERT INTO work VALUES ('x')"); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := l.Check(); err != nil {
		t.Errorf("a gate has cost the lease: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Gate(t.Context(), begin(t, db), l); !errors.Is(err, backend.ErrLost) {
		t.Errorf("with a lease that was released: %v", err)
	}
	elsewhere, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	other, err := elsewhere.TryAcquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	if err := Gate(t.Context(), begin(t, db), other); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("with a lease that is elsewhere: %v", err)
	}
}

// The gate checks the tenure, not the name, the holder or the token.
func TestGateIsForOneTenure(t *testing.T) {
	path := newPath(t)
	db := raw(t, path, durable)
	a, b := client(t, path), client(t, path)
	mine, err := a.Claim(t.Context(), request("jobs/x", "me", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	pass := func() error {
		tx := begin(t, db)
		defer tx.Rollback()
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
	for column, value := range map[string]any{"holder": "you", "token": 99, "incarnation": claim.NewOp().String(), "name": "jobs/y", "ns": "another"} {
		var was any
		if err := db.QueryRow("SELECT " + column + " FROM leasekeeper_lease").Scan(&was); err != nil {
			t.Fatal(err)
		}
		run(t, db, "UPDATE leasekeeper_lease SET "+column+" = ?", value)
		says(t, pass(), backend.ErrLost, "jobs/x", "roll the transaction back")
		run(t, db, "UPDATE leasekeeper_lease SET "+column+" = ?", was)
	}
	if err := pass(); err != nil {
		t.Fatal(err)
	}
	if err := b.Revoke(t.Context(), "jobs/x", 0, "for a test", true); err != nil {
		t.Fatal(err)
	}
	says(t, pass(), backend.ErrLost)
	says(t, GateClaim(t.Context(), begin(t, raw(t, newPath(t), durable)), mine), backend.ErrInvalid, "another file")
}

// A transaction that is longer than the lease delays all others, and commits before another client has the
// name.
func TestGatedTransactionOutlastsTheLease(t *testing.T) {
	path := newPath(t)
	db := raw(t, path, durable)
	a, b := client(t, path), client(t, path)
	mine, err := a.Claim(t.Context(), request("jobs/x", "me", 50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db)
	if err := GateClaim(t.Context(), tx, mine); err != nil {
		t.Fatal(err)
	}
	taken, committed := make(chan time.Time, 1), time.Time{}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := take(t.Context(), b, request("jobs/x", "you", time.Minute)); err != nil {
			t.Error(err)
		}
		taken <- time.Now()
	})
	time.Sleep(200 * time.Millisecond) // four times the lease
	committed = time.Now()
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	if when := <-taken; when.Before(committed) {
		t.Errorf("the name was taken %v before the transaction ended", committed.Sub(when))
	}
	says(t, GateClaim(t.Context(), begin(t, db), mine), backend.ErrLost)
}

// Takeovers race with gated transactions; none of an older token commits after one of a newer.
func TestTakeoverRacesGate(t *testing.T) {
	path := newPath(t)
	db := raw(t, path, durable)
	run(t, db, "CREATE TABLE ledger (last INTEGER NOT NULL)")
	run(t, db, "INSERT INTO ledger VALUES (0)")
	// work is one gated transaction. Between gate and write there is time for a takeover.
	work := func(l *claim.Lease) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := GateClaim(t.Context(), tx, l); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
		var last backend.Token
		if err := tx.QueryRow("SELECT last FROM ledger").Scan(&last); err != nil {
			return err
		}
		if last > l.Token() {
			t.Errorf("token %d writes after token %d", l.Token(), last)
		}
		if _, err := tx.Exec("UPDATE ledger SET last = ?", int64(l.Token())); err != nil {
			return err
		}
		return tx.Commit()
	}
	var mu sync.Mutex
	commits, lost := 0, 0
	var all sync.WaitGroup
	for _, holder := range []string{"a", "b", "c"} {
		c := client(t, path)
		all.Go(func() {
			for range 5 {
				l, err := take(t.Context(), c, request("jobs/x", holder, 12*time.Millisecond)) // and never renews
				if err != nil {
					t.Error(err)
					return
				}
				for range 20 { // until another client has the name
					err := work(l)
					mu.Lock()
					if err == nil {
						commits++
					} else if errors.Is(err, backend.ErrLost) {
						lost++
					}
					mu.Unlock()
					if errors.Is(err, backend.ErrLost) {
						break
					}
					time.Sleep(10 * time.Millisecond) // and lets others in
				}
			}
		})
	}
	all.Wait()
	if commits == 0 || lost == 0 {
		t.Errorf("%d transactions were committed, %d refused: there was no race", commits, lost)
	}
}
