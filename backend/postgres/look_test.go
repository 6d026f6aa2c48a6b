//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

// checkTurn checks that a process waits for a name in the queue and gets it.
func checkTurn(t *testing.T, database, url string) {
	t.Helper()
	a, b := keeper(t, url, leasekeeper.WithHolder("a")), keeper(t, url, leasekeeper.WithHolder("b"))
	l, err := a.Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	taken, cancel := acquiring(t, b, "x")
	defer cancel()
	until(t, "b has a ticket", func() bool { return tickets(t, database) == 1 })
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := <-taken
	if next == nil {
		t.Fatal("the name was not taken")
	}
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A store calls the function for looks if the owner of the tables has created it, from the source that the store knows. In
// all other cases it sends the source itself, and its processes wait in the queue as well.
func TestOnlyTheOwnFunctionLooks(t *testing.T) {
	const drop = "DROP FUNCTION leasekeeper_look()"
	const another = "CREATE FUNCTION leasekeeper_look() RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''not ours''; END'"
	var clerks atomic.Int64 // for unique names: roles belong to the whole server
	for what, c := range map[string]struct {
		statements []string // of the owner of the tables
		mayCreate  bool     // the user of the store may create functions
		uses       bool
	}{
		"created with the tables":                {uses: true},
		"tables of an older version":             {statements: []string{drop}},
		"tables of an older version, may create": {statements: []string{drop}, mayCreate: true}, // it is not the owner of the tables
		"another source":                         {statements: []string{drop, another}},
		"another owner":                          {statements: []string{"CREATE ROLE %s_friend", "ALTER FUNCTION leasekeeper_look() OWNER TO %s_friend"}},
		"rights of its owner":                    {statements: []string{"ALTER FUNCTION leasekeeper_look() SECURITY DEFINER"}},
		"may not be called":                      {statements: []string{"REVOKE EXECUTE ON FUNCTION leasekeeper_look() FROM PUBLIC"}},
	} {
		t.Run(what, func(t *testing.T) {
			database := databases.PostgreSQL(t).Database(t)
			if err := opened(t, database, Config{}).Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint("looker", clerks.Add(1))
			clerk := user(t, database, name)
			run(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO PUBLIC", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
			if c.mayCreate {
				run(t, database, "GRANT CREATE ON SCHEMA public TO PUBLIC")
			}
			for _, s := range c.statements {
				if s == "CREATE ROLE %s_friend" || len(c.statements) == 2 && c.statements[0] == "CREATE ROLE %s_friend" {
					s = fmt.Sprintf(s, name)
				}
				run(t, database, s)
			}
			if s := opened(t, clerk, Config{}); s.UsesLookFunction() != c.uses || !s.HasQueues() {
				t.Errorf("uses the function: %v; has queues: %v", s.UsesLookFunction(), s.HasQueues())
			}
			checkTurn(t, database, clerk)
		})
	}
}

// The owner of tables of an older version adds the function when it opens a store.
func TestFunctionForLooksIsAddedToOlderTables(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	if err := opened(t, database, Config{}).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	run(t, database, "DROP FUNCTION leasekeeper_look()")
	if !opened(t, database, Config{}).UsesLookFunction() {
		t.Error("the function was not added")
	}
}

// The function that the printed statements create is called as well, in whatever schema it is, and finds the tables there.
func TestFunctionOfThePrintedSchemaLooks(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	printed, err := sqlstore.Schema(sqlstore.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	run(t, database, printed, "CREATE SCHEMA other", "SET search_path = other; "+printed)
	for _, schema := range []string{"public", "other"} {
		s := opened(t, database, Config{Schema: schema})
		if !s.UsesLookFunction() {
			t.Errorf("%s: the function is not called", schema)
		}
		q := queuesOf(t, s)
		defer q.Close(t.Context())
		if _, err := q.Join(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if all, err := q.Look(t.Context(), claim.Look{For: 20 * time.Second}); err != nil || len(all) != 1 || time.Since(began) > 10*time.Second {
			t.Errorf("%s: the look took %v: %+v, %v", schema, time.Since(began), all, err)
		}
	}
}

// If the function for looks is dropped, or may no longer be called, while processes wait, they wait without it.
func TestLooksGoOnWithoutTheFunction(t *testing.T) {
	for _, spoil := range []string{"DROP FUNCTION leasekeeper_look()", "REVOKE EXECUTE ON FUNCTION leasekeeper_look() FROM PUBLIC"} {
		t.Run(spoil, func(t *testing.T) {
			database := databases.PostgreSQL(t).Database(t)
			if err := opened(t, database, Config{}).Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			clerk := user(t, database, fmt.Sprint("spoiled", len(spoil)))
			run(t, database, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO PUBLIC")
			s := opened(t, clerk, Config{})
			q := queuesOf(t, s)
			defer q.Close(t.Context())
			if _, err := q.Join(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			run(t, database, spoil)
			if _, err := q.Look(t.Context(), claim.Look{For: time.Second}); !errors.Is(err, backend.ErrUnavailable) {
				t.Fatalf("a look by a missing function: %v", err)
			}
			if s.UsesLookFunction() || !s.HasQueues() {
				t.Errorf("uses the function: %v; has queues: %v", s.UsesLookFunction(), s.HasQueues())
			}
			again := queuesOf(t, s)
			defer again.Close(t.Context())
			if _, err := again.Join(t.Context(), "y"); err != nil {
				t.Fatal(err)
			}
			if standings, err := again.Look(t.Context(), claim.Look{For: time.Second}); err != nil || len(standings) != 1 {
				t.Errorf("%+v, %v", standings, err)
			}
		})
	}
}

// A process that was the head of a queue while it looked finds that another ticket went before its own. It returns then at
// the latest when the name is free, and claims nothing.
func TestLookShowsATicketThatWentBefore(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	l, err := keeper(t, database).Acquire(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	q, other := queuesOf(t, opened(t, database, Config{})), queuesOf(t, opened(t, database, Config{}))
	defer q.Close(t.Context())
	defer other.Close(t.Context())
	if is, err := q.Join(t.Context(), "x"); err != nil || is.Ahead != 0 {
		t.Fatalf("%+v, %v", is, err)
	}
	looked := make(chan []claim.Standing, 1)
	go func() {
		all, err := q.Look(t.Context(), claim.Look{For: 20 * time.Second})
		if err != nil {
			t.Error(err)
		}
		looked <- all
	}()
	until(t, "it looks", func() bool {
		return queryOne[int64](t, database, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'") == 1
	})
	before, err := other.(claim.PriorityQueues).JoinWith(t.Context(), "x", claim.Ticket{Priority: 1})
	if err != nil || before.Ahead != 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all := <-looked; len(all) != 1 || all[0].Ahead != 1 || all[0].Head != before.Place {
		t.Errorf("%+v", all)
	}
}
