//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// prepared returns how many statements of the store are prepared on a pool's only connection.
func prepared(t *testing.T, p *pgxpool.Pool) (n int) {
	t.Helper()
	if err := p.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%leasekeeper%'", pgx.QueryExecModeExec).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Statements are prepared on a direct connection, after the first few, unless the settings of the pool prevent it.
func TestStatementsArePreparedOnDirectConnections(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	for what, should := range map[string]bool{"": true, "exec": false, "no cache": false} { // order: irrelevant, each has its own pool
		p := pool(t, database, func(c *pgxpool.Config) {
			c.MaxConns = 1
			switch what {
			case "exec":
				c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
			case "no cache":
				c.ConnConfig.StatementCacheCapacity = 0
			}
		})
		s, err := New(t.Context(), p, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if n := prepared(t, p); n > 0 {
			t.Errorf("%q: %d statements are prepared at once", what, n)
		}
		for range unprepared {
			if _, err := s.Get(t.Context(), "jobs/x"); err != nil {
				t.Fatal(err)
			}
		}
		if n := prepared(t, p); (n > 0) != should {
			t.Errorf("%q: %d statements are prepared", what, n)
		}
	}
}

// Behind a pooler nothing is prepared, on any connection.
func TestNothingIsPreparedBehindAPooler(t *testing.T) {
	server := databases.PostgreSQL(t)
	database := server.Database(t)
	const most = 4
	p := pool(t, server.NewPgBouncer(t).Before(t, database), func(c *pgxpool.Config) { c.MaxConns = most })
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var last claim.Op
	for i := range most*unprepared + 1 { // at least one connection has then run more than unprepared statements
		last = swap(t, s, last, record("jobs/x", backend.Token(i+1))).Op
	}
	asked := 0
	for _, conn := range p.AcquireAllIdle(t.Context()) {
		is := sessionOf(conn.Conn())
		if is.direct || is.plain != (is.count > unprepared) {
			t.Errorf("a connection through the pooler counts as direct: %+v", is)
		}
		if is.plain {
			asked++
		}
		conn.Release()
	}
	if asked == 0 {
		t.Error("no connection was checked for a pooler")
	}
}

// If prepared statements are deallocated or the tables change, statements run without them.
func TestLostPreparedStatementsAreReplaced(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	for _, spoil := range []string{"DEALLOCATE ALL", "ALTER TABLE leasekeeper_lease ALTER card TYPE varchar(5000)"} {
		p := pool(t, database, func(c *pgxpool.Config) { c.MaxConns = 1 })
		s, err := New(t.Context(), p, Config{})
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("jobs/%d", len(spoil))
		last := swap(t, s, claim.Op{}, record(name, 1)).Op
		for range unprepared {
			if _, err := s.Get(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		last = swap(t, s, last, record(name, 2)).Op
		if n := prepared(t, p); n < 2 {
			t.Fatalf("%d statements are prepared", n)
		}
		if _, err := p.Exec(t.Context(), spoil, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		if f, err := s.Get(t.Context(), name); err != nil || f.Record.Token != 2 {
			t.Errorf("%s: %+v, %v", spoil, f, err)
		}
		swap(t, s, last, record(name, 3))
	}
}

// A statement that fails because its prepared statement no longer fits has done nothing, and is repeated.
func TestStalePreparedStatementHadNoEffect(t *testing.T) {
	s := opened(t, databases.PostgreSQL(t).Database(t), Config{})
	conn, err := poolOf(s).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "EXECUTE missing", pgx.QueryExecModeSimpleProtocol)
	f := failure(err)
	if !stale(err) || !f.Again || !errors.Is(f.Kind, backend.ErrUnavailable) || !strings.Contains(f.Error(), "prepared") {
		t.Errorf("%v: %+v", err, f)
	}
	_, err = conn.Exec(t.Context(), "SELECT missing", pgx.QueryExecModeSimpleProtocol)
	if stale(err) {
		t.Errorf("%v counts as an error of a prepared statement", err)
	}
}

// In the sessions of its own pool, a store makes the server plan each prepared statement once. It changes no settings in a
// pool of the program, and none of a session behind a pooler, which other programs may get later.
func TestOnlyOwnSessionsPlanOnce(t *testing.T) {
	server := databases.PostgreSQL(t)
	database := server.Database(t)
	own, err := Open(t.Context(), database+"&pool_max_conns=1", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close(t.Context())
	pooler, err := Open(t.Context(), server.NewPgBouncer(t).Before(t, database)+"&pool_max_conns=1", Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer pooler.Close(t.Context())
	theirs := pool(t, database, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s, err := New(t.Context(), theirs, Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what  string
		store *Store
		want  string
	}{{"own pool", own, "force_generic_plan"}, {"pool of the program", s, "auto"}, {"behind a pooler", pooler, "auto"}} {
		for range unprepared + 1 {
			if _, err := c.store.Get(t.Context(), "jobs/x"); err != nil {
				t.Fatal(err)
			}
		}
		var mode string
		if err := poolOf(c.store).QueryRow(t.Context(), "SHOW plan_cache_mode", pgx.QueryExecModeExec).Scan(&mode); err != nil || mode != c.want {
			t.Errorf("%s: plan_cache_mode is %q, want %q, %v", c.what, mode, c.want, err)
		}
	}
}
