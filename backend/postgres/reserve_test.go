//go:build unix

package postgres

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
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

// exhausted returns a lease of a keeper whose pool has two connections, both in use by the program. set changes the settings
// of the pool.
func exhausted(t *testing.T, ttl time.Duration, set func(*pgxpool.Config)) *leasekeeper.Lease {
	t.Helper()
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 2
		set(c)
	})
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := claimed.New(s)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b, leasekeeper.WithHolder("a"), leasekeeper.WithTTL(ttl))
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
	l := exhausted(t, 3*time.Second, func(c *pgxpool.Config) {
		c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			connected.Add(1)
			return nil
		}
	})
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

// deafConn is a connection to a server. Once it is deaf, the server receives nothing more, as if the packets were lost.
type deafConn struct {
	net.Conn
	deaf atomic.Bool
	lost atomic.Int32 // writes that the server did not receive
}

func (c *deafConn) Write(b []byte) (int, error) {
	if c.deaf.Load() {
		c.lost.Add(1)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// The first connection for renewals leads nowhere, and the program uses all connections of its pool. The hedge goes over the
// second connection for renewals, so the lease is kept.
func TestHedgeUsesTheSecondReservedConnection(t *testing.T) {
	var mu sync.Mutex
	var conns []*deafConn // that were set up, in order
	l := exhausted(t, 6*time.Second, func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &deafConn{Conn: conn}, err
		}
		c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			mu.Lock()
			defer mu.Unlock()
			conns = append(conns, conn.PgConn().Conn().(*deafConn))
			if len(conns) == 3 { // behind the two of the program
				conns[2].deaf.Store(true)
			}
			return nil
		}
	})
	for before, now := l.TTL(), l.Remaining(); now <= before; before, now = now, l.Remaining() { // until a renewal is answered
		select {
		case <-l.Context().Done():
			t.Fatal("the lease is lost:", l.Check())
		case <-time.After(10 * time.Millisecond):
		}
	}
	mu.Lock()
	defer mu.Unlock()
	defer func() {
		for _, conn := range conns[min(2, len(conns)):] {
			conn.Close() // the keeper would wait for the server to end the deaf one
		}
	}()
	if len(conns) < 4 || conns[2].lost.Load() == 0 {
		t.Errorf("%d connections were opened; is the first one for renewals deaf and used? %v", len(conns), len(conns) > 2 && conns[2].lost.Load() > 0)
	}
}

// Connections for renewals get what the hooks of the pool set up for each connection, and each use of it.
func TestReservedConnectionHasTheHooksOfThePool(t *testing.T) {
	var mu sync.Mutex
	var connected, prepared []uint32 // process IDs of the server
	note := func(pids *[]uint32, conn *pgx.Conn) {
		mu.Lock()
		defer mu.Unlock()
		*pids = append(*pids, conn.PgConn().PID())
	}
	database := databases.PostgreSQL(t).Database(t)
	p := pool(t, database, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			note(&connected, conn)
			return nil
		}
		c.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
			note(&prepared, conn)
			return true, nil
		}
	})
	c, err := claim.NewClient(storeOf(t, p), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Claim(t.Context(), request("jobs/x", "a", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	own := holdAll(t, p)
	mu.Lock()
	connected, prepared = nil, nil
	mu.Unlock()
	if err := c.Extend(t.Context(), l, 0); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(connected) != 1 || slices.Contains(own, connected[0]) {
		t.Errorf("the hook for new connections was called for %v; the program has %v", connected, own)
	}
	if len(prepared) == 0 || len(connected) == 1 && !slices.Contains(prepared, connected[0]) {
		t.Errorf("the hook for each use was called for %v, and not for %v", prepared, connected)
	}
}

// storeOf returns a store on a pool.
func storeOf(t *testing.T, p *pgxpool.Pool) *Store {
	t.Helper()
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

// holdAll uses all connections of a pool until the end of the test, and returns their process IDs of the server.
func holdAll(t *testing.T, p *pgxpool.Pool) (pids []uint32) {
	t.Helper()
	for range p.Config().MaxConns {
		conn, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
		pids = append(pids, conn.Conn().PgConn().PID())
	}
	return pids
}

// A server refuses the connections for renewals, because the user has no more. Renewals use the pool, and the log says once
// what to do.
func TestRefusedReservedConnectionIsLoggedOnce(t *testing.T) {
	var logged bytes.Buffer
	before, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(writer)
		log.SetFlags(flags)
	}()
	database := databases.PostgreSQL(t).Database(t)
	capped := "capped_" + queryOne[string](t, database, "SELECT current_database()")
	of := user(t, database, capped)
	run(t, database, "GRANT ALL ON SCHEMA public TO "+capped, "ALTER ROLE "+capped+" CONNECTION LIMIT 2")
	p := pool(t, of, func(c *pgxpool.Config) { c.MaxConns = 2 })
	c, err := claim.NewClient(storeOf(t, p), claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]*pgxpool.Conn // so that both are open
	for i := range conns {
		if conns[i], err = p.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range conns {
		conn.Release()
	}
	for i := range 2 {
		l, err := c.Claim(t.Context(), request(fmt.Sprint("jobs/", i), "a", time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Extend(t.Context(), l, 0); err != nil {
			t.Errorf("renewal %d: %v", i, err)
		}
	}
	const warning = "cannot open a connection for renewals"
	if text := logged.String(); strings.Count(text, warning) != 1 || !strings.Contains(text, "raise the connection limit of the server or of this user") ||
		!strings.Contains(text, "too many connections for role") {
		t.Errorf("the log does not say once why, and what to do:\n%s", text)
	}
}
