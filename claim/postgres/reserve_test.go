package postgres

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/databases"
)

// exhausted returns a keeper with a lease on a pool of two connections, both of which transactions of the program
// hold. It counts the connections that are made.
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
	b, err := claim.NewBackend(s)
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
		if err := k.Close(context.Background()); err != nil {
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

// A program whose own transactions take all connections of its pool keeps its leases: renewals have connections of
// their own, made with the hooks of the pool.
func TestExhaustedPoolLosesNoLease(t *testing.T) {
	var connected atomic.Int32
	l := exhausted(t, &connected)
	before := connected.Load()
	time.Sleep(3 * l.TTL())
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	if made := connected.Load() - before; made == 0 || made > reserved {
		t.Errorf("%d connections were made for renewals, with the hook of the pool", made)
	}
}

// Where they are refused the pool is used.
func TestRenewalsUseThePoolIfTheirOwnConnectionIsRefused(t *testing.T) {
	var connected, refused atomic.Int32
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			if connected.Add(1) > 2 {
				refused.Add(1)
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
	connected.Store(2)
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q := claim.Request{Name: "jobs/x", Holder: leasekeeper.Holder{ID: "a"}, TTL: time.Minute}
	q.ID[0] = 1
	l, err := c.Claim(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Extend(t.Context(), l, 0); err != nil || refused.Load() == 0 {
		t.Errorf("%v, after %d connections were refused", err, refused.Load())
	}
}
