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
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/claimtest"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/driver"
	"github.com/leasekeeper/leasekeeper/internal/databases"
)

// record returns one that is held.
func record(name string, token driver.Token) claim.Record {
	return claim.Record{Name: name, Holder: "me", Token: token, Op: claim.NewOp(), Incarnation: driver.ID(claim.NewOp()), Domain: "d", TTL: time.Second}
}

func swap(t testing.TB, s claim.Store, old claim.Op, r claim.Record) claim.Record {
	t.Helper()
	if done, err := s.Swap(t.Context(), claim.Swap{Old: old, Record: r, Owner: true}); !done || err != nil {
		t.Fatal(done, err)
	}
	return r
}

// says fails unless an error is of a kind, of no other, and says something.
func says(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	for _, other := range []error{driver.ErrUnavailable, driver.ErrUnknownOutcome, driver.ErrInvalid, driver.ErrCorrupt, driver.ErrContention, driver.ErrLost} {
		if other != kind && errors.Is(err, other) {
			t.Errorf("%v is also %v", err, other)
		}
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

// run runs statements as the superuser.
func run(t testing.TB, database string, statements ...string) {
	t.Helper()
	databases.PostgreSQL(t).Run(t, database, statements...)
}

// user returns the URL of a database for a new user with no rights but to connect.
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

// pool returns one of the caller's own.
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

// deaf is a store whose notifications do not get through.
type deaf struct {
	claim.Store
	claim.Batcher
	claim.Clocks
	claim.Bounded
	claim.Judge
}

// Behind pgbouncer in transaction mode, and with the strictest default isolation.
func TestStoreBehindPgBouncer(t *testing.T) {
	server := databases.PostgreSQL(t)
	direct := server.Database(t)
	run(t, direct, "ALTER DATABASE "+strings.TrimPrefix(path(t, direct), "/")+" SET default_transaction_isolation = 'serializable'")
	through := server.NewPgBouncer(t).Before(t, direct)
	claimtest.Run(t, claimtest.Config{
		Open: func(t testing.TB, namespace string, storeClock bool) (claim.Store, error) {
			s, err := Open(t.Context(), through, Config{Namespace: namespace, StoreClock: storeClock})
			if err != nil {
				return nil, err
			}
			return deaf{s, s, s, s, s}, nil
		},
		Cannot: []string{claimtest.Local, claimtest.Notify},
		Damage: func(t testing.TB, namespace, name string) { damage(t, direct, namespace, name) },
	})
}

func path(t testing.TB, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path
}

// Behind pgbouncer nothing is heard. That is noticed at once, and who waits finds out by asking.
func TestPgBouncerIsNoticed(t *testing.T) {
	server := databases.PostgreSQL(t)
	direct := server.Database(t)
	through := server.NewPgBouncer(t).Before(t, direct)
	s := opened(t, through, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err := s.Listen(ctx, func(string) { t.Error("something was heard") })
	says(t, err, driver.ErrUnavailable, "pgbouncer")
	var listening int
	if err := pool(t, direct, nil).QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'listen%'").Scan(&listening); err != nil || listening > 0 {
		t.Errorf("%d connections of others were left listening, %v", listening, err)
	}
	holder, waiter := keeper(t, through+"&poll=50ms"), keeper(t, through+"&poll=50ms")
	l, err := holder.TryAcquire(ctx, "jobs/x")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := waiter.Acquire(ctx, "jobs/x"); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(100 * time.Millisecond)
	if err := l.Release(ctx); err != nil {
		t.Error(err)
	}
	all.Wait()
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
		_ = k.Close(ctx)
	})
	return k
}

func TestServersThatForgetAreRefused(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	hasty := user(t, database, "hasty")
	run(t, database, "GRANT ALL ON SCHEMA public TO hasty", "ALTER ROLE hasty SET synchronous_commit = 'off'")
	_, err := Open(t.Context(), hasty, Config{})
	says(t, err, driver.ErrInvalid, "synchronous_commit", "accept the loss")
	opened(t, hasty, Config{AcceptLoss: true})
	opened(t, hasty+"&accept=loss", Config{})
	// The setting of another connection than the one that was looked at.
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
		says(t, err, driver.ErrInvalid, "synchronous_commit")
	}
	_, err = s.SwapAll(t.Context(), []claim.Swap{{Old: r.Op, Record: record("x", 2)}})
	says(t, err, driver.ErrInvalid, "synchronous_commit")
	if f, err := s.Get(t.Context(), "x"); err != nil || f.Record.Op != r.Op {
		t.Errorf("something was written: %+v, %v", f, err)
	}
	reckless, err := New(t.Context(), p, Config{AcceptLoss: true})
	if err != nil {
		t.Fatal(err)
	}
	swap(t, reckless, r.Op, record("x", 2))
}

// A user who may only read and write the tables needs no more, and one who may not is told what he lacks.
func TestRights(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	plain := user(t, database, "plain")
	_, err := Open(t.Context(), plain, Config{})
	says(t, err, driver.ErrInvalid, "`leasekeeper schema postgres` prints")
	if strings.Contains(err.Error(), "GRANT") {
		t.Errorf("it advises two things: %v", err)
	}
	_, err = Open(t.Context(), plain, Config{Prefix: "xx_"})
	says(t, err, driver.ErrInvalid, "`leasekeeper schema postgres --prefix xx_` prints")
	schema, err := sqlstore.Schema(sqlstore.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	run(t, database, schema, schema) // twice is as good as once
	_, err = Open(t.Context(), plain, Config{})
	says(t, err, driver.ErrInvalid, "GRANT")
	run(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON leasekeeper_lease, leasekeeper_sighting, leasekeeper_clock, leasekeeper_namespace TO plain")
	s := opened(t, plain, Config{})
	r := swap(t, s, claim.Op{}, record("x", 1))
	swap(t, s, r.Op, record("x", 2))
}

func TestTablesThatAreNotAsTheyShouldBe(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	for prefix, c := range map[string]struct{ change, says, advises string }{ // order: each for itself
		"a_": {"UPDATE a_namespace SET version = 2", "newer leasekeeper", ""},
		"b_": {"ALTER TABLE b_lease DROP CONSTRAINT b_lease_ns_name_token_key", "UNIQUE (ns, name, token)", "postgres --prefix b_`"},
		"c_": {"ALTER TABLE c_lease SET UNLOGGED", "permanent", "postgres --prefix c_`"},
		"d_": {"DROP TABLE d_lease", "there is no table d_lease", "postgres --prefix d_`"},
		"e_": {"UPDATE e_namespace SET mode = 'store'", "clock=store", ""},
	} {
		opened(t, database, Config{Prefix: prefix})
		run(t, database, c.change)
		_, err := Open(t.Context(), database, Config{Prefix: prefix})
		says(t, err, driver.ErrInvalid, c.says, c.advises)
	}
	s := opened(t, database, Config{Prefix: "f_"})
	run(t, database, "ALTER TABLE f_lease RENAME COLUMN op TO other")
	_, err := s.Get(t.Context(), "x")
	says(t, err, driver.ErrInvalid, "not as they should be", "postgres --prefix f_`")
}

// The mode is looked at by every write, not only when the store is opened.
func TestModeIsCheckedByEachWrite(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	s := opened(t, database, Config{})
	r := swap(t, s, claim.Op{}, record("x", 1))
	try := func(parts ...string) {
		t.Helper()
		for _, w := range []claim.Swap{{Old: r.Op, Record: record("x", 2)}, {Record: record("y", 1)}, {Old: r.Op, Record: record("x", 2), Owner: true}} {
			_, err := s.Swap(t.Context(), w)
			says(t, err, driver.ErrInvalid, parts...)
			_, err = s.SwapAll(t.Context(), []claim.Swap{w})
			says(t, err, driver.ErrInvalid, parts...)
		}
		_, err := s.Get(t.Context(), "x")
		says(t, err, driver.ErrInvalid, parts...)
	}
	run(t, database, "UPDATE leasekeeper_namespace SET mode = 'store'")
	try("clock=store")
	run(t, database, "DELETE FROM leasekeeper_namespace")
	try("raise its floor")
	var ops int
	if err := pool(t, database, nil).QueryRow(t.Context(), "SELECT count(*) FROM leasekeeper_lease WHERE op = $1", r.Op.String()).Scan(&ops); err != nil || ops != 1 {
		t.Errorf("something was written: %d, %v", ops, err)
	}
}

func TestReadOnlyServer(t *testing.T) {
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
	says(t, err, driver.ErrUnavailable, "primary")
}

// A write that is cut off while it waits may have happened; one that the server refuses has not.
func TestWritesThatAreCutOff(t *testing.T) {
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
	// What was cut off happens on the server when it can, whatever became of its client. So the op is read anew.
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
		t.Errorf("does not say why: %v", err)
	}
	says(t, err, driver.ErrUnknownOutcome)
	err = blocked(s, t.Context(), func() {
		waiting(1)
		if _, err := p.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"); err != nil {
			t.Error(err)
		}
	})
	says(t, err, driver.ErrUnknownOutcome)
	impatient := opened(t, database+"&lock_timeout=50ms", Config{})
	says(t, blocked(impatient, t.Context(), func() {}), driver.ErrUnavailable, "lock_timeout")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	before := current()
	_, err = s.Swap(cancelled, claim.Swap{Old: before, Record: record("x", 2)})
	says(t, err, driver.ErrUnavailable)
	if now := current(); now != before {
		t.Errorf("what was not sent has happened: %v, and not %v", now, before)
	}
}

// The server crashes while many write. Whatever was acknowledged is there afterwards, and whatever was refused
// is not.
func TestServerCrashesWhileManyWrite(t *testing.T) {
	server := databases.NewPostgreSQL(t)
	database := server.Database(t)
	s := opened(t, database, Config{})
	const writers = 8
	type last struct {
		sure    claim.Op // acknowledged
		unknown []claim.Op
		token   driver.Token
	}
	var stop atomic.Bool
	var written, cut atomic.Int64
	lasts := make([]last, writers)
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			name, l := fmt.Sprintf("jobs/%d", i), &lasts[i]
			for !stop.Load() {
				r := record(name, l.token+1)
				done, err := s.Swap(t.Context(), claim.Swap{Old: l.sure, Record: r})
				switch {
				case err == nil && done:
					l.sure, l.token, l.unknown = r.Op, r.Token, nil
					written.Add(1)
				case err == nil: // one of those whose outcome was unknown had happened
					f, err := s.Get(t.Context(), name)
					if err != nil {
						continue
					}
					if !contains(l.unknown, f.Record.Op) {
						t.Errorf("%s has op %v, and nobody wrote that", name, f.Record.Op)
						return
					}
					l.sure, l.token, l.unknown = f.Record.Op, f.Record.Token, nil
				case errors.Is(err, driver.ErrUnknownOutcome):
					l.unknown = append(l.unknown, r.Op)
					cut.Add(1)
				case !errors.Is(err, driver.ErrUnavailable):
					t.Errorf("%s: %v", name, err)
				}
				if err != nil {
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	for range 2 {
		for before := written.Load(); written.Load() < before+30; {
			time.Sleep(5 * time.Millisecond)
		}
		server.Crash(t)
		server.Start(t)
	}
	for before := written.Load(); written.Load() < before+30; {
		time.Sleep(5 * time.Millisecond)
	}
	stop.Store(true)
	all.Wait()
	if cut.Load() == 0 {
		t.Error("no write was cut off")
	}
	for i, l := range lasts {
		f, err := s.Get(t.Context(), fmt.Sprintf("jobs/%d", i))
		if err != nil || f.Record.Op != l.sure && !contains(l.unknown, f.Record.Op) {
			t.Errorf("jobs/%d has op %v, and not %v, %v", i, f.Record.Op, l.sure, err)
		}
	}
}

func contains(ops []claim.Op, op claim.Op) bool {
	for _, o := range ops {
		if o == op {
			return true
		}
	}
	return false
}

// 32 keepers compete for one name. Nobody is in there with another, and tokens grow.
func TestManyKeepersForOneName(t *testing.T) {
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
					t.Errorf("%d hold it", n)
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

// traced counts statements, but for those that tell others, and the one of each connection that finds out where it
// leads.
type traced struct{ statements atomic.Int64 }

func (c *traced) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(q.SQL, "pg_notify") && !strings.Contains(q.SQL, "pg_backend_pid") {
		c.statements.Add(1)
	}
	return ctx
}

func (c *traced) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestClaimIsTwoStatements(t *testing.T) {
	count := &traced{}
	p := pool(t, databases.PostgreSQL(t).Database(t), func(c *pgxpool.Config) { c.ConnConfig.Tracer = count })
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := claim.NewBackend(s)
	if err != nil {
		t.Fatal(err)
	}
	k, err := leasekeeper.New(b)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(context.Background())
	var held []*leasekeeper.Lease
	for i, most := range []int64{4, 2, 2} { // of a name that was never leased, and then of one that was released
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
	raws := make([]driver.Lease, len(held))
	for i, l := range held {
		raws[i] = l.Raw()
	}
	count.statements.Store(0)
	if err := b.Renew(t.Context(), raws, func(_ int, r driver.Renewal) {
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

func TestURLs(t *testing.T) {
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
		if _, err := driver.Open(t.Context(), database+bad); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := Open(t.Context(), database+"&poll=1s", Config{}); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
	for _, bad := range []string{"postgres://me:hunter2@127.0.0.1:1/x?connect_timeout=2", "postgres://me:hunter2@127.0.0.1:x/x", "postgres://me:hunter2@h/x?sslmode=maybe", "postgres://me:hunter2@h/x?password=hunter2&nss=y"} {
		_, err := driver.Open(t.Context(), bad)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		_, err = Open(t.Context(), bad, Config{})
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
	}
}

// What the search path of one connection finds, that of another does not lose.
func TestSearchPathIsLookedAtOnce(t *testing.T) {
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
