//go:build unix

package postgres

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestSettingsThatLoseWritesAreRefused(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	hasty := user(t, database, "hasty")
	run(t, database, "GRANT ALL ON SCHEMA public TO hasty", "ALTER ROLE hasty SET synchronous_commit = 'off'")
	_, err := Open(t.Context(), hasty, Config{})
	says(t, err, backend.ErrInvalid, "synchronous_commit", "accept the loss")
	opened(t, hasty, Config{AcceptLoss: true})
	opened(t, hasty+"&accept=loss", Config{})
	// A setting that changes on another connection after the store was opened.
	var calls atomic.Int64
	p := pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			value := "on"
			if calls.Load() > 0 {
				value = "off"
			}
			_, err := conn.Exec(ctx, "SET synchronous_commit = "+value)
			return err == nil, err
		}
	})
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := swap(t, s, claim.Op{}, record("x", 1))
	calls.Add(1)
	for _, w := range []claim.Swap{{Old: r.Op, Record: record("x", 2)}, {Record: record("y", 1)}, {Old: r.Op, Record: record("x", 2), Owner: true}} {
		_, err = s.Swap(t.Context(), w)
		says(t, err, backend.ErrInvalid, "synchronous_commit")
	}
	_, err = s.SwapAll(t.Context(), []claim.Swap{{Old: r.Op, Record: record("x", 2)}})
	says(t, err, backend.ErrInvalid, "synchronous_commit")
	if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Op != r.Op {
		t.Errorf("a refused write changed the record: %+v, %v", f, err)
	}
	reckless, err := New(t.Context(), p, Config{AcceptLoss: true})
	if err != nil {
		t.Fatal(err)
	}
	swap(t, reckless, r.Op, record("x", 2))
}

func TestReadOnlyServerRefusesWrites(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	r := swap(t, s, claim.Op{}, record("x", 1))
	p := pool(t, database, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on" })
	reader, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := reader.Get(t.Context(), "x"); err != nil || f.Record.Op != r.Op {
		t.Errorf("%+v, %v", f, err)
	}
	_, err = reader.Swap(t.Context(), claim.Swap{Old: r.Op, Record: record("x", 2)})
	says(t, err, backend.ErrUnavailable, "primary")
}

// A write that is interrupted while it waits has an unknown outcome. A write that the server refuses did nothing.
func TestInterruptedWritesReportTheirOutcome(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{Patience: time.Second})
	swap(t, s, claim.Op{}, record("x", 1))
	p := pool(t, database, nil)
	waiting := func(want int) {
		t.Helper()
		n := -1
		for limit := time.Now().Add(20 * time.Second); n != want; time.Sleep(5 * time.Millisecond) {
			if err := p.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").Scan(&n); err != nil || time.Now().After(limit) {
				t.Fatalf("%d wait for a lock, and not %d: %v", n, want, err)
			}
		}
	}
	// The server still carries out an interrupted write when it can, so the op is read again.
	current := func() claim.Op {
		t.Helper()
		waiting(0)
		f, err := s.Get(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return f.Record.Op
	}
	// blocked runs a write while the row is locked.
	blocked := func(s claim.Store, ctx context.Context, meanwhile func()) error {
		t.Helper()
		from := current()
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := tx.Exec(t.Context(), "SELECT FROM leasekeeper_lease FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := s.Swap(ctx, claim.Swap{Old: from, Record: record("x", 2)})
			ended <- err
		}()
		meanwhile()
		return <-ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := blocked(s, ctx, func() { waiting(1); cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error does not wrap the context's: %v", err)
	}
	says(t, err, backend.ErrUnknownOutcome)
	err = blocked(s, t.Context(), func() {
		waiting(1)
		if _, err := p.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"); err != nil {
			t.Error(err)
		}
	})
	says(t, err, backend.ErrUnknownOutcome)
	impatient := opened(t, database+"&lock_timeout=50ms", Config{})
	says(t, blocked(impatient, t.Context(), func() {}), backend.ErrUnavailable, "lock_timeout")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	before := current()
	_, err = s.Swap(cancelled, claim.Swap{Old: before, Record: record("x", 2)})
	says(t, err, backend.ErrUnavailable)
	if now := current(); now != before {
		t.Errorf("a write that was not sent took effect: the op is %v, want %v", now, before)
	}
}

func TestServerCrashLosesNoAcknowledgedWrite(t *testing.T) {
	server := databases.NewPostgreSQL(t)
	claimtest.RunCrashes(t, opened(t, server.Database(t), Config{}), func() {
		server.Crash(t)
		server.Start(t)
	})
}
