package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper/backend/internal/storetest"
	"github.com/leasekeeper/leasekeeper/clock"
)

// committed counts the commits of all connections that it makes.
type committed struct {
	driver.Connector
	commits atomic.Int64
}

func (c *committed) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	hooks, ok := conn.(sqlite.HookRegisterer)
	if !ok {
		return nil, errors.Join(errors.New("its commits cannot be counted"), conn.Close())
	}
	hooks.RegisterCommitHook(func() int32 { c.commits.Add(1); return 0 })
	return conn, nil
}

func TestKeeperOfManyLeasesKeepsThemAll(t *testing.T) {
	path := newPath(t)
	connector, err := sqlite.NewConnector(source(path) + "&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	count := &committed{Connector: connector}
	db := sql.OpenDB(count)
	defer db.Close()
	s, err := New(t.Context(), db, Config{})
	if err != nil {
		t.Fatal(err)
	}
	eye := raw(t, path, "")
	held := func(t testing.TB, written clock.Instant) (n int) {
		t.Helper()
		const look = "SELECT count(*) FROM leasekeeper_lease WHERE holder = 'me' AND written_raw >= ?"
		if err := eye.QueryRowContext(t.Context(), look, written.Raw).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	storetest.KeepsMany(t, storetest.Many{Store: s, Writes: count.commits.Load, Together: 2000, Held: held})
}
