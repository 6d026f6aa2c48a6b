//go:build unix

package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// exhausted returns a lease of a keeper whose pool has two connections, both in use by the program. It counts the
// connections that are opened.
func exhausted(t *testing.T, connected *atomic.Int32) *leasekeeper.Lease {
	t.Helper()
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			connected.Add(1)
			return nil
		}
	})
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := claimed.New(s)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b, leasekeeper.WithHolder("a"), leasekeeper.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var held []*pgxpool.Conn
	t.Cleanup(func() {
		for _, conn := range held {
			conn.Release()
		}
		if err := k.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	l, err := k.Acquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, conn)
	}
	return l
}

// A program that uses all connections of its pool keeps its leases: renewals have their own connections, opened with the
// hooks of the pool.
func TestExhaustedPoolLosesNoLease(t *testing.T) {
	var connected atomic.Int32
	l := exhausted(t, &connected)
	before := connected.Load()
	time.Sleep(3 * l.TTL())
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	if made := connected.Load() - before; made == 0 || made > reserved {
		t.Errorf("%d connections were opened for renewals with the hook of the pool", made)
	}
}

// refused returns a client and its store, whose pool has two connections and can open no others.
func refused(t *testing.T, count *atomic.Int32) (*claim.Client, *Store) {
	t.Helper()
	var connected atomic.Int32
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if connected.Add(1) > 2 {
				count.Add(1)
				return context.DeadlineExceeded
			}
			return nil
		}
	})
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	var held [2]*pgxpool.Conn // so that both are open
	for i := range held {
		if held[i], err = p.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range held {
		conn.Release()
	}
	connected.Store(2)
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

// If the connections for renewals are refused, renewals use the pool.
func TestRenewalsUseThePoolIfTheirOwnConnectionIsRefused(t *testing.T) {
	var count atomic.Int32
	c, _ := refused(t, &count)
	l, err := c.Claim(t.Context(), request("jobs/x", "a", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Extend(t.Context(), l, 0); err != nil || count.Load() == 0 {
		t.Errorf("%v, after %d connections were refused", err, count.Load())
	}
}

// However many renewals hang, one connection of the pool stays free for claims.
func TestRenewalsLeaveClaimsAConnection(t *testing.T) {
	var count atomic.Int32
	c, s := refused(t, &count)
	var leases [3]*claim.Lease
	for i := range leases {
		l, err := c.Claim(t.Context(), request(fmt.Sprint("jobs/", i), "a", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		leases[i] = l
	}
	locker, err := pgx.ConnectConfig(t.Context(), poolOf(s).Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close(context.Background())
	tx, err := locker.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM leasekeeper_lease FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	renewed := make(chan error, len(leases))
	limit, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i, l := range leases {
		go func() { renewed <- c.Extend(context.WithoutCancel(t.Context()), l, 0) }()
		// One after the other: a renewal that finds all slots taken does not try to open a connection.
		for count.Load() <= int32(i) || len(s.db.(*database).reserve.slots) > 0 {
			select {
			case <-time.After(time.Millisecond):
			case <-limit.Done():
				t.Fatalf("%d connections were refused before renewal %d", count.Load(), i)
			}
		}
	}
	if _, err := c.Claim(limit, request("jobs/x", "a", time.Minute)); err != nil {
		t.Error(err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range leases {
		if err := <-renewed; err != nil {
			t.Error(err)
		}
	}
}
