//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// openDB opens a database by database/sql with pgx's driver. It is closed at the end of the test. set may be nil.
func openDB(t testing.TB, url string, set func(*pgx.ConnConfig), o ...stdlib.OptionOpenDB) *sql.DB {
	t.Helper()
	c, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(c)
	}
	db := stdlib.OpenDB(*c, o...)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// storeOn returns a store that is closed at the end of the test.
func storeOn(t testing.TB, db *sql.DB, c Config) *Store {
	t.Helper()
	s, err := NewDB(t.Context(), db, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	return s
}

func TestStoreOnADBPassesTheSuite(t *testing.T) {
	url := databases.PostgreSQL(t).Database(t)
	db := openDB(t, url, nil)
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			return NewDB(t.Context(), db, Config{Namespace: namespace, StoreClock: storeClock})
		},
		Cannot: []string{claimtest.Local},
		Damage: func(t testing.TB, namespace, name string) { damage(t, url, namespace, name) },
	})
}

func TestBackendOnADBPassesTheSuite(t *testing.T) {
	t.Parallel()
	runSuiteOnDB(t, []string{backend.Transfer}, func(database string) string { return database })
}

func TestBackendOnADBPassesTheSuiteBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer := databases.PostgreSQL(t).NewPgBouncer(t)
	runSuiteOnDB(t, []string{backend.Transfer}, func(database string) string { return bouncer.Before(t, database) }, claimed.WithPoll(100*time.Millisecond))
}

// runSuiteOnDB is runSuite for backends that have a sql.DB of their own, like processes.
func runSuiteOnDB(t *testing.T, cannot []string, urlOf func(database string) string, o ...claimed.Option) {
	database := databases.PostgreSQL(t).Database(t)
	runInNamespaces(t, cannot, database, func(t testing.TB, namespace string) backend.Backend {
		s, err := NewDB(t.Context(), openDB(t, urlOf(database), nil), Config{Namespace: namespace})
		if err != nil {
			t.Fatal(err)
		}
		b, err := claimed.New(s, o...)
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// A program that uses all connections of its database keeps its leases: renewals have their own connections, with the
// settings of the database's.
func TestExhaustedDBLosesNoLease(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	db := openDB(t, database, func(c *pgx.ConnConfig) { c.RuntimeParams["application_name"] = "the program" })
	db.SetMaxOpenConns(2)
	b, err := claimed.New(storeOn(t, db, Config{}))
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b, leasekeeper.WithTTL(3*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := k.Acquire(t.Context(), "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	time.Sleep(3 * l.TTL())
	if err := l.Check(); err != nil {
		t.Error(err)
	}
	var n int
	const count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'the program'"
	if err := pool(t, database, nil).QueryRow(t.Context(), count).Scan(&n); err != nil || n < 3 || n > 2+reserved {
		t.Errorf("the program has %d connections, and not its own 2 and up to %d for renewals: %v", n, reserved, err)
	}
}

// The store's own connections have what the program's hook changed last before it connected, such as a new password.
func TestOwnConnectionsHaveTheNewestSettings(t *testing.T) {
	var connected atomic.Int64
	db := openDB(t, databases.PostgreSQL(t).Database(t), nil, stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
		c.Config = *c.Config.Copy() // the hook gets a shallow copy
		c.RuntimeParams["application_name"] = fmt.Sprint("connection ", connected.Add(1))
		return nil
	}))
	db.SetMaxIdleConns(0)
	s := storeOn(t, db, Config{})
	dialed := func() (name string) {
		t.Helper()
		conn, err := s.db.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer closeConn(t.Context(), conn)
		if err := conn.QueryRow(t.Context(), "SELECT current_setting('application_name')").Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	before := dialed()
	if _, err := s.Get(t.Context(), "jobs/x"); err != nil {
		t.Fatal(err)
	}
	if after := dialed(); after == before || after != fmt.Sprint("connection ", connected.Load()) {
		t.Errorf("the own connection is %q, then %q after %d connections", before, after, connected.Load())
	}
}

// Statements are prepared on the connections of a sql.DB too.
func TestStatementsArePreparedOnADB(t *testing.T) {
	db := openDB(t, databases.PostgreSQL(t).Database(t), nil)
	db.SetMaxOpenConns(1)
	s := storeOn(t, db, Config{})
	for range unprepared + 1 {
		if _, err := s.Get(t.Context(), "jobs/x"); err != nil {
			t.Fatal(err)
		}
	}
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%leasekeeper_lease%'").Scan(&n); err != nil || n == 0 {
		t.Errorf("%d statements are prepared: %v", n, err)
	}
}

// A handler of notifications in the program's settings does not take those for the store.
func TestHandlerOfTheProgramTakesNoNotification(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	handle := func(*pgconn.PgConn, *pgconn.Notification) { t.Error("the handler of the program was called") }
	db := openDB(t, database, func(c *pgx.ConnConfig) { c.OnNotification = handle })
	onPool, err := New(t.Context(), pool(t, database, func(c *pgxpool.Config) { c.ConnConfig.OnNotification = handle }), Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = onPool.Close(context.Background()) })
	for i, s := range []*Store{storeOn(t, db, Config{}), onPool} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		names := make(chan string, 100)
		var all sync.WaitGroup
		all.Go(func() { _ = s.Listen(ctx, func(name string) { names <- name }) })
		<-names // it listens
		want := fmt.Sprint("jobs/", i)
		swap(t, s, claim.Op{}, record(want, 1))
		select {
		case name := <-names:
			if name != want {
				t.Errorf("the notification is about %q, want %q", name, want)
			}
		case <-ctx.Done():
			t.Error("no notification came")
		}
		cancel()
		all.Wait()
	}
}

func TestUnusableDBsAreRefused(t *testing.T) {
	_, err := NewDB(t.Context(), nil, Config{})
	says(t, err, backend.ErrInvalid, "nil")
	closed, err := sql.Open("pgx", databases.PostgreSQL(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	s := storeOn(t, closed, Config{})
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = NewDB(t.Context(), closed, Config{})
	says(t, err, backend.ErrClosed)
	_, err = s.Get(t.Context(), "jobs/x")
	says(t, err, backend.ErrClosed)
}
