//go:build unix

package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// older returns a database whose tables are from before there were marks.
func older(t testing.TB) string {
	t.Helper()
	database := databases.PostgreSQL(t).Database(t)
	if err := opened(t, database, Config{}).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, database, "ALTER TABLE leasekeeper_lease DROP COLUMN mark")
	return database
}

func clientOf(t testing.TB, s claim.Store) *claim.Client {
	t.Helper()
	c, err := claim.NewClient(s, claim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func begun(t testing.TB, c *claim.Client, name string) *claim.Lease {
	t.Helper()
	l, err := c.Claim(t.Context(), claim.Request{Name: name, ID: backend.ID(claim.NewOp()), Holder: backend.Holder{ID: "a"}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Tables from before marks get their column when a user opens them who may do that.
func TestOldTablesGetMarks(t *testing.T) {
	database := older(t)
	c := clientOf(t, opened(t, database, Config{}))
	if err := c.Finish(t.Context(), begun(t, c, "x"), backend.Finish{Tick: backend.TickNumber(3)}); err != nil {
		t.Fatal(err)
	}
	if mark := queryOne[string](t, database, "SELECT mark FROM leasekeeper_lease"); mark != "1 3" {
		t.Errorf("the column has %q", mark)
	}
	run(t, database, "UPDATE leasekeeper_lease SET mark = 'x 4'")
	_, err := c.Mark(t.Context(), "x")
	says(t, err, backend.ErrCorrupt, `mark is "x 4"`)
}

// Without the right to add the column a store works as before. It says what to do where marks are wanted, and removes no
// record that may have one.
func TestStoreWithoutTheColumnWorksWithoutMarks(t *testing.T) {
	database := older(t)
	clerk := user(t, database, "markless")
	run(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	s := opened(t, clerk, Config{})
	c := clientOf(t, s)
	l := begun(t, c, "x")
	says(t, c.RaiseMark(t.Context(), l, backend.TickNumber(1)), backend.ErrUnsupported, "leasekeeper_lease", "`leasekeeper schema postgres` prints", "restart")
	if err := c.Extend(t.Context(), l, 0); err != nil {
		t.Error(err)
	}
	for range 3 {
		if err := c.Finish(t.Context(), l, backend.Finish{}); err != nil {
			t.Error(err)
		}
		l = begun(t, c, "x")
	}
	if err := c.Release(t.Context(), l); err != nil {
		t.Error(err)
	}
	w := record("y", 1)
	w.Mark = backend.Mark{Tick: backend.TickNumber(1)}
	_, err := s.Swap(t.Context(), claim.Swap{Record: w})
	says(t, err, backend.ErrUnsupported, "restart")
	if n, err := c.Collect(t.Context(), claim.Collection{}); n != 1 || err != nil {
		t.Errorf("collected %d, %v", n, err)
	}
	l = begun(t, c, "x")

	schema, err := sqlstore.Schema(sqlstore.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	run(t, database, schema)
	marking := clientOf(t, opened(t, clerk, Config{}))
	if done, err := marking.ReplaceMark(t.Context(), "x", backend.Mark{}, backend.Mark{Tick: backend.TickNumber(5)}); !done || err != nil {
		t.Fatal(done, err)
	}
	if err := c.Announce(t.Context(), l, "busy"); err != nil {
		t.Error(err)
	}
	if err := c.Release(t.Context(), l); err != nil {
		t.Error(err)
	}
	_, err = c.Collect(t.Context(), claim.Collection{})
	says(t, err, backend.ErrUnsupported, "restart")
	if m, err := marking.Mark(t.Context(), "x"); m.Tick != backend.TickNumber(5) || err != nil {
		t.Errorf("the mark is %q, %v", m.Text(), err)
	}
}

// A transaction that has the table locked does not keep a store from being opened, nor renewals from being done.
func TestLockedTableDoesNotDelayTheStore(t *testing.T) {
	database := older(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, statement := range []string{"BEGIN", "SELECT FROM leasekeeper_lease FOR KEY SHARE"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s := opened(t, database, Config{})
	if err := s.CanMark(); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	swap(t, s, claim.Op{}, record("x", 1))
	if _, err := conn.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := opened(t, database, Config{}).CanMark(); err != nil {
		t.Error(err)
	}
}
