//go:build unix

package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// told is what a teller has sent. Each send waits until it is let go on, or its context ends.
type told struct {
	began chan []string
	goOn  chan struct{}
}

func newTold(t *teller) *told {
	w := &told{make(chan []string, 100), make(chan struct{}, 100)}
	t.send = func(ctx context.Context, names []string) error {
		w.began <- names
		select {
		case <-w.goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w
}

func (w *told) next(t *testing.T) []string {
	t.Helper()
	select {
	case names := <-w.began:
		return names
	case <-time.After(10 * time.Second):
		t.Fatal("nothing is told")
		return nil
	}
}

// What comes while something is told, is told together after it: each name once, in order; and if it is too much,
// that any name may have changed.
func TestTellsTogether(t *testing.T) {
	teller := newTeller()
	w := newTold(teller)
	teller.add("x", true)
	if names := w.next(t); !slices.Equal(names, []string{"x"}) {
		t.Fatal(names)
	}
	for _, name := range []string{"b", "a", "b", "x"} {
		teller.add(name, true)
	}
	w.goOn <- struct{}{}
	if names := w.next(t); !slices.Equal(names, []string{"b", "a", "x"}) {
		t.Fatal(names)
	}
	for i := range 3 * maxTold {
		teller.add(fmt.Sprint(i), true)
	}
	w.goOn <- struct{}{}
	if names := w.next(t); len(names) > maxTold || !slices.Contains(names, "") {
		t.Fatalf("%d names: %q", len(names), names)
	}
	w.goOn <- struct{}{}
	teller.close(t.Context(), func() {})
	teller.add("late", true)
	if teller.done != nil || len(teller.names) > 0 {
		t.Error("something is to be told by a teller that is closed")
	}
}

// That a name has got a holder is told too, if nothing else is.
func TestTellsOfHoldersToo(t *testing.T) {
	teller := newTeller()
	w := newTold(teller)
	w.goOn <- struct{}{}
	teller.add("x", false)
	if names := w.next(t); !slices.Equal(names, []string{"x"}) {
		t.Fatal(names)
	}
	teller.close(t.Context(), func() {})
}

// Close has the last names told. What takes too long is cut, and nothing goes on afterwards.
func TestTellerEnds(t *testing.T) {
	teller := newTeller()
	ctx, cut := context.WithCancel(t.Context())
	heard := errors.New("nothing was told")
	teller.send = func(context.Context, []string) error {
		select {
		case <-time.After(50 * time.Millisecond): // a server that is not the fastest
			heard = nil
		case <-ctx.Done():
			heard = errors.New("it was cut before it had a chance")
		}
		return heard
	}
	teller.add("x", false)
	teller.close(t.Context(), cut)
	if heard != nil {
		t.Error(heard)
	}

	teller = newTeller()
	ctx, cut = context.WithCancel(t.Context())
	ended := make(chan struct{})
	teller.send = func(context.Context, []string) error {
		defer close(ended)
		<-ctx.Done()
		return ctx.Err()
	}
	teller.add("x", true)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	teller.close(over, cut)
	select {
	case <-ended:
	default:
		t.Error("it goes on")
	}
	teller.close(t.Context(), cut) // once more
}

// Who waits is told also if the one who released ends at once. The teller takes no part in what is acknowledged,
// and leaves the settings of the connection as they are.
func TestLastReleaseIsTold(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	listener := opened(t, database, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	names := make(chan string, 100)
	var all sync.WaitGroup
	all.Go(func() { _ = listener.Listen(ctx, func(name string) { names <- name }) })
	defer all.Wait()
	defer cancel()
	<-names // it listens
	p := pool(t, database, func(c *pgxpool.Config) { c.MaxConns = 1 })
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := record("jobs/x", 1)
	r.Holder = ""
	swap(t, s, claim.Op{}, r)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case name := <-names:
		if name != "jobs/x" {
			t.Errorf("heard of %q", name)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was heard")
	}
	var commit string
	if err := p.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&commit); err != nil || commit != "on" {
		t.Errorf("synchronous_commit is %q, %v", commit, err)
	}
}

// prepared returns how many statements are prepared on the only connection of a pool.
func prepared(t *testing.T, p *pgxpool.Pool) (n int) {
	t.Helper()
	if err := p.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%leasekeeper%'", pgx.QueryExecModeExec).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Statements are prepared where nothing stands between, after some, and unless the caller's pool does not.
func TestPrepares(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	for what, should := range map[string]bool{"": true, "exec": false, "no cache": false} { // order: each has a pool
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

// Behind a pooler nothing is prepared, on any of its connections to the server.
func TestPreparesNothingBehindAPooler(t *testing.T) {
	server := databases.PostgreSQL(t)
	database := server.Database(t)
	const most = 4
	p := pool(t, server.NewPgBouncer(t).Before(t, database), func(c *pgxpool.Config) { c.MaxConns = most })
	s, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	var last claim.Op
	for i := range most*unprepared + 1 { // so one connection has had more than unprepared, whichever served
		last = swap(t, s, last, record("jobs/x", backend.Token(i+1))).Op
	}
	asked := 0
	for _, conn := range p.AcquireAllIdle(t.Context()) {
		is := sessionOf(conn.Conn())
		if is.direct || is.plain != (is.count > unprepared) {
			t.Errorf("a connection is taken for one to the server itself: %+v", is)
		}
		if is.plain {
			asked++
		}
		conn.Release()
	}
	if asked == 0 {
		t.Error("no connection was asked where it leads")
	}
}

// Where what was prepared vanishes, or the tables are changed under it, statements go on without it.
func TestWhatWasPreparedVanishes(t *testing.T) {
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

// Of what fails because of what was prepared it is known that nothing was done.
func TestStale(t *testing.T) {
	s := opened(t, databases.PostgreSQL(t).Database(t), Config{})
	conn, err := s.db.pool.Acquire(t.Context())
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
		t.Errorf("%v has to do with what was prepared", err)
	}
}
