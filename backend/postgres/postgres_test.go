//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/backend/claimed"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// run runs statements as the superuser.
func run(t testing.TB, database string, statements ...string) {
	t.Helper()
	databases.PostgreSQL(t).Run(t, database, statements...)
}

// user returns the URL of a database for a new user who may only connect.
func user(t testing.TB, database, name string) string {
	t.Helper()
	run(t, database, "CREATE ROLE "+name+" LOGIN")
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(name)
	return u.String()
}

// pool returns a pool that is closed at the end of the test. set may be nil.
func pool(t testing.TB, database string, set func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	if set != nil {
		set(c)
	}
	p, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func keeper(t testing.TB, rawURL string, o ...leasekeeper.KeeperOption) *leasekeeper.Keeper {
	t.Helper()
	k, err := leasekeeper.Open(t.Context(), rawURL, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = k.Shutdown(ctx)
	})
	return k
}

// A user needs only the rights to read and write the tables. Without them, the error says which right is missing.
func TestStoreNeedsOnlyReadAndWriteRights(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	plain := user(t, database, "plain")
	_, err := Open(t.Context(), plain, Config{})
	says(t, err, backend.ErrInvalid, "`leasekeeper schema postgres` prints")
	if strings.Contains(err.Error(), "GRANT") {
		t.Errorf("the error has two pieces of advice: %v", err)
	}
	_, err = Open(t.Context(), plain, Config{Prefix: "xx_"})
	says(t, err, backend.ErrInvalid, "`leasekeeper schema postgres --prefix xx_` prints")
	schema, err := sqlstore.Schema(sqlstore.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	run(t, database, schema, schema) // running it twice does no harm
	_, err = Open(t.Context(), plain, Config{})
	says(t, err, backend.ErrInvalid, "GRANT")
	run(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON leasekeeper_lease, leasekeeper_sighting, leasekeeper_clock, leasekeeper_namespace TO plain")
	s := opened(t, plain, Config{})
	r := swap(t, s, claim.Op{}, record("x", 1))
	swap(t, s, r.Op, record("x", 2))
}

func TestUnfitTablesAreRefused(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	for prefix, c := range map[string]struct{ change, says, advises string }{ // order: irrelevant, each prefix has its own tables
		"a_": {"UPDATE a_namespace SET version = 3", "version 3", "newer leasekeeper"},
		"b_": {"UPDATE b_namespace SET version = 1", "the tables b_* are of version 1", "raise the floor"},
		"c_": {"ALTER TABLE c_lease SET UNLOGGED", "permanent", "postgres --prefix c_`"},
		"d_": {"DROP TABLE d_lease", "there is no table d_lease", "postgres --prefix d_`"},
		"e_": {"UPDATE e_namespace SET mode = 'store'", "clock=store", ""},
	} {
		opened(t, database, Config{Prefix: prefix})
		run(t, database, c.change)
		_, err := Open(t.Context(), database, Config{Prefix: prefix})
		says(t, err, backend.ErrInvalid, c.says, c.advises)
	}
	s := opened(t, database, Config{Prefix: "f_"})
	run(t, database, "ALTER TABLE f_lease RENAME COLUMN op TO other")
	_, err := s.Get(t.Context(), "x")
	says(t, err, backend.ErrInvalid, "not as they should be", "postgres --prefix f_`")
}

// No column that changes has an index, so each write of a row touches its page only.
func TestNoChangingColumnHasAnIndex(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	opened(t, database, Config{})
	var indexed string
	if err := pool(t, database, nil).QueryRow(t.Context(), `SELECT string_agg(DISTINCT a.attname, ' ' ORDER BY a.attname) FROM pg_index i
		JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey) WHERE i.indrelid = 'leasekeeper_lease'::regclass`).Scan(&indexed); err != nil || indexed != "name ns" {
		t.Errorf("the indexed columns are %s, %v", indexed, err)
	}
}

// Every write checks the mode, not only the opening of the store.
func TestModeIsCheckedByEachWrite(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	r := swap(t, s, claim.Op{}, record("x", 1))
	try := func(parts ...string) {
		t.Helper()
		for _, w := range []claim.Swap{{Old: r.Op, Record: record("x", 2)}, {Record: record("y", 1)}, {Old: r.Op, Record: record("x", 2), Owner: true}} {
			_, err := s.Swap(t.Context(), w)
			says(t, err, backend.ErrInvalid, parts...)
			_, err = s.SwapAll(t.Context(), []claim.Swap{w})
			says(t, err, backend.ErrInvalid, parts...)
		}
		_, err := s.Get(t.Context(), "x")
		says(t, err, backend.ErrInvalid, parts...)
	}
	run(t, database, "UPDATE leasekeeper_namespace SET mode = 'store'")
	try("clock=store")
	run(t, database, "DELETE FROM leasekeeper_namespace")
	try("raise its floor")
	var ops int
	if err := pool(t, database, nil).QueryRow(t.Context(), "SELECT count(*) FROM leasekeeper_lease WHERE op = $1", r.Op.String()).Scan(&ops); err != nil || ops != 1 {
		t.Errorf("a refused write changed the record: %d, %v", ops, err)
	}
}

// 32 keepers compete for one name. No two hold it at once, and tokens increase.
func TestManyKeepersExcludeEachOther(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t) + "&pool_max_conns=2"
	const keepers, turns = 32, 3
	var inside, last atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for i := range keepers {
		k := keeper(t, database, leasekeeper.WithHolder(fmt.Sprintf("k%d", i)), leasekeeper.WithTTL(30*time.Second))
		all.Go(func() {
			for range turns {
				l, err := k.Acquire(ctx, "jobs/x")
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d keepers hold the name", n)
				}
				if before := last.Swap(int64(l.Token())); before >= int64(l.Token()) {
					t.Errorf("token %d after %d", l.Token(), before)
				}
				inside.Add(-1)
				if err := l.Release(ctx); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	if last.Load() < keepers*turns {
		t.Errorf("the last token is %d", last.Load())
	}
}

// traced counts statements, except notifications and the check for a pooler.
type traced struct{ statements atomic.Int64 }

func (c *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(q.SQL, "pg_notify") && !strings.Contains(q.SQL, "pg_backend_pid") {
		c.statements.Add(1)
	}
	return ctx
}

func (c *traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestClaimTakesTwoStatements(t *testing.T) {
	count := &traced{}
	p := pool(t, databases.PostgreSQL(t).Database(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = count })
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := claimed.New(s)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var held []*leasekeeper.Lease
	for i, most := range []int64{4, 2, 2} { // first a name that was never leased, then one that was released
		count.statements.Store(0)
		l, err := k.TryAcquire(t.Context(), "jobs/x")
		if n := count.statements.Load(); err != nil || n > most || n == 0 {
			t.Errorf("claim %d: %d statements, %v", i, n, err)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for i := range 20 {
		l, err := k.TryAcquire(t.Context(), fmt.Sprintf("jobs/%d", i))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, l)
	}
	raws := make([]backend.Lease, len(held))
	for i, l := range held {
		raws[i] = l.Raw()
	}
	count.statements.Store(0)
	if err := b.Renew(t.Context(), raws, func(_ int, r backend.Renewal) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}); err != nil {
		t.Error(err)
	}
	if n := count.statements.Load(); n > 2 {
		t.Errorf("%d statements to renew %d leases", n, len(raws))
	}
}

func TestURLSettingsAreChecked(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	run(t, database, "CREATE SCHEMA ops")
	for _, more := range []string{"", "&ns=a", "&prefix=x_", "&schema=ops", "&ns=b&clock=store", "&poll=100ms"} {
		if _, err := keeper(t, database+more).TryAcquire(t.Context(), "jobs/x"); err != nil && more != "&poll=100ms" {
			t.Errorf("%s: %v", more, err)
		} else if more == "&poll=100ms" && !errors.Is(err, leasekeeper.ErrHeld) {
			t.Errorf("%s: %v", more, err)
		}
	}
	keeper(t, strings.Replace(database, "postgres:", "postgresql:", 1))
	for _, bad := range []string{"&clock=mine", "&nss=x", "&ns=", "&poll=1ns", "&prefix=A"} {
		if _, err := backend.Open(t.Context(), database+bad); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := Open(t.Context(), database+"&poll=1s", Config{}); !errors.Is(err, backend.ErrInvalid) {
		t.Error(err)
	}
	for _, bad := range []string{"postgres://me:hunter2@127.0.0.1:1/x?connect_timeout=2", "postgres://me:hunter2@127.0.0.1:x/x", "postgres://me:hunter2@h/x?sslmode=maybe", "postgres://me:hunter2@h/x?password=hunter2&nss=y"} {
		_, err := backend.Open(t.Context(), bad)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		_, err = Open(t.Context(), bad, Config{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

// A different search path on another connection does not lead to other tables.
func TestSchemaIsFixedWhenTheStoreOpens(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	run(t, database, "CREATE SCHEMA other")
	var path atomic.Value
	path.Store("other, public")
	p := pool(t, database, func(c *pgxpool.Config) {
		c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
			_, err := conn.Exec(ctx, "SET search_path = "+path.Load().(string))
			return err == nil, err
		}
	})
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := swap(t, s, claim.Op{}, record("x", 1))
	path.Store("public")
	swap(t, s, r.Op, record("x", 2))
	if s.Config().Schema != "other" {
		t.Errorf("the schema is %q", s.Config().Schema)
	}
}
