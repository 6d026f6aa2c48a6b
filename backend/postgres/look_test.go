//go:build unix

package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"regexp"
	"strings"
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

// lookCall returns the name of the function for looks with its empty list of arguments.
func lookCall(t *testing.T) string {
	t.Helper()
	printed, err := sqlstore.Schema(sqlstore.PostgreSQL, "")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`leasekeeper_look_[0-9a-f]{8}"\(\)`).FindString(printed)
	if name == "" {
		t.Fatal("the schema has no function for looks")
	}
	return strings.ReplaceAll(name, `"`, "")
}

// A store calls the function for looks if the owner of the tables has created it, from the source that the store knows, and
// only owners of the schema or the tables can create another. In all other cases it sends the source itself, and its
// processes wait in the queue as well.
func TestOnlyTheOwnFunctionLooks(t *testing.T) {
	look := lookCall(t)
	drop := "DROP FUNCTION " + look
	another := "CREATE FUNCTION " + look + " RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''not ours''; END'"
	var clerks atomic.Int64 // for unique names: roles belong to the whole server
	for what, c := range map[string]struct {
		statements []string // of the owner of the tables
		mayCreate  bool     // every user may create functions in the schema
		uses       bool
	}{
		"created with the tables":                {uses: true},
		"tables of an older version":             {statements: []string{drop}},
		"tables of an older version, may create": {statements: []string{drop}, mayCreate: true},
		"others may create functions":            {mayCreate: true},
		"another source":                         {statements: []string{drop, another}},
		"another owner":                          {statements: []string{"CREATE ROLE %s_friend", "ALTER FUNCTION " + look + " OWNER TO %s_friend"}},
		"rights of its owner":                    {statements: []string{"ALTER FUNCTION " + look + " SECURITY DEFINER"}},
		"may not be called":                      {statements: []string{"REVOKE EXECUTE ON FUNCTION " + look + " FROM PUBLIC"}},
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
	run(t, database, "DROP FUNCTION "+lookCall(t))
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

// A role that may create functions in the schema puts its own in the place of the dropped one, while programs run that were
// opened when it could. No program calls it.
func TestFunctionOfAnotherRoleIsNeverCalled(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	if err := opened(t, database, Config{}).Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mallory := user(t, database, "mallory")
	run(t, database, "GRANT CREATE ON SCHEMA public TO mallory")
	s := opened(t, database, Config{})
	q := queuesOf(t, s)
	defer q.Close(t.Context())
	if _, err := q.Join(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	run(t, database, "DROP FUNCTION "+lookCall(t))
	run(t, mallory, "CREATE FUNCTION "+lookCall(t)+" RETURNS void LANGUAGE plpgsql AS 'BEGIN RAISE ''as %'', current_user; END'",
		"CREATE FUNCTION public.multiply(numeric, float8) RETURNS float8 LANGUAGE plpgsql AS 'BEGIN RAISE ''as %'', current_user; END'",
		"CREATE OPERATOR public.* (LEFTARG = numeric, RIGHTARG = float8, FUNCTION = public.multiply)")
	for range 2 {
		if all, err := q.Look(t.Context(), claim.Look{For: 10 * time.Second}); err != nil || len(all) != 1 {
			t.Errorf("%+v, %v", all, err)
		}
	}
}

// A function of another version has another name, and stays as it is.
func TestLookFunctionsOfTwoVersionsExistTogether(t *testing.T) {
	database := databases.PostgreSQL(t).Database(t)
	const old = "leasekeeper_look_01234567"
	run(t, database, "CREATE FUNCTION "+old+"() RETURNS void LANGUAGE plpgsql AS 'BEGIN END'")
	if !opened(t, database, Config{}).UsesLookFunction() {
		t.Error("the function of this version is not called")
	}
	if source := queryOne[string](t, database, "SELECT prosrc FROM pg_proc WHERE proname = '"+old+"'"); source != "BEGIN END" {
		t.Errorf("the function of another version is now %q", source)
	}
}

// A store logs once, when it first waits, that it does so without the function.
func TestLooksWithoutTheFunctionAreLogged(t *testing.T) {
	var logged bytes.Buffer
	before, writer, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
	defer func() {
		slog.SetDefault(before)
		log.SetOutput(writer)
		log.SetFlags(flags)
	}()
	for _, c := range []struct {
		statement, state string
		waiting          bool // the statement runs when a process waits already
	}{
		{"SELECT", "", false},
		{"GRANT CREATE ON SCHEMA public TO PUBLIC", "state=exposed", false},
		{"DROP FUNCTION " + lookCall(t), "state=missing", true},
	} {
		logged.Reset()
		database := databases.PostgreSQL(t).Database(t)
		if err := opened(t, database, Config{}).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !c.waiting {
			run(t, database, c.statement)
		}
		s := opened(t, database, Config{})
		for i := range 2 {
			q := queuesOf(t, s)
			if c.waiting && i == 0 {
				run(t, database, c.statement)
			}
			_, err := q.Look(t.Context(), claim.Look{For: time.Millisecond})
			if wrong := c.waiting && i == 0; (err != nil) != wrong {
				t.Errorf("%s: %v", c.statement, err)
			}
			q.Close(t.Context())
		}
		most := min(1, len(c.state))
		if text := logged.String(); strings.Count(text, "without the function") != most || !strings.Contains(text, c.state) {
			t.Errorf("%s: logged %q", c.statement, text)
		}
	}
}

// If the function for looks is dropped, or may no longer be called, while processes wait, they wait without it.
func TestLooksGoOnWithoutTheFunction(t *testing.T) {
	look := lookCall(t)
	for _, spoil := range []string{"DROP FUNCTION " + look, "REVOKE EXECUTE ON FUNCTION " + look + " FROM PUBLIC"} {
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
