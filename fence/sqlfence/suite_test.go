package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/leasekeeper/leasekeeper/fence"
)

// suite holds the tests for every kind of database. The first one is of rule G12 in docs/design/time-and-identity.md.
var suite = []struct {
	name string
	test func(*testing.T, world)
}{
	{"stale updates change nothing", staleUpdatesChangeNothing},
	{"repeated writes pass", repeatedWritesPass},
	{"tokens that do not fit are refused", tokensThatDoNotFitAreRefused},
	{"corrupt tokens are refused", corruptTokensAreRefused},
	{"marks take only tokens", marksTakeOnlyTokens},
	{"invalid columns are refused", invalidColumnsAreRefused},
	{"names are quoted", namesAreQuoted},
	{"guard refuses stale transactions", guardRefusesStaleTransactions},
	{"names are bytes", namesAreBytes},
	{"no token between guard and commit", noTokenBetweenGuardAndCommit},
	{"waiting writer is refused by the newer token", waitingWriterIsRefusedByTheNewerToken},
	{"old snapshot does not admit a stale token", oldSnapshotDoesNotAdmitAStaleToken},
	{"late writes overwrite only without tokens", lateWritesOverwriteOnlyWithoutTokens},
	{"concurrent writes are in token order", concurrentWritesAreInTokenOrder},
	{"agrees with a model", agreesWithModel},
	{"guard saves its marks", guardSavesItsMarks},
	{"marks require a durable database", marksRequireADurableDatabase},
}

func runSuite(t *testing.T, w world) {
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) { s.test(t, w) })
	}
}

func TestStaleWritesAreRefusedInSQLite(t *testing.T) { runSuite(t, sqliteWorld) }

func staleUpdatesChangeNothing(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	c.run(t, "INSERT INTO jobs (id, token) VALUES ('a', 0), ('b', NULL)")
	for _, id := range []string{"a", "b"} {
		wantNil(t, c.update(ctx, c, id, 9, "state = ?, runs = runs + 1", "nine"))
		wantNil(t, c.update(ctx, c, id, 9, "state = ?", "nine again"))
		wantNil(t, c.update(ctx, c, id, 10, "state = ?", "ten")) // a comparison of texts would put 10 before 9
		wantStale(t, c.update(ctx, c, id, 9, "state = ?", "stale"), "jobs "+id, 9, 10)
		wantState(t, c, id, "ten")
		wantNil(t, c.jobs().Advance(ctx, c, id, 11))
		wantStale(t, c.update(ctx, c, id, 10, "state = ?", "stale"), "jobs "+id, 10, 11)
		wantState(t, c, id, "ten")
	}
	wantIs(t, c.update(ctx, c, "c", 9, "state = ?", "x"), ErrNotFound)
	wantIs(t, c.jobs().Advance(ctx, c, nil, 9), ErrNotFound)
}

// A write passes again although it changes nothing.
func repeatedWritesPass(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	c.run(t, "INSERT INTO jobs (id, token) VALUES ('a', 0)")
	for range 2 {
		wantNil(t, c.jobs().Advance(ctx, c, "a", 9))
		wantNil(t, c.update(ctx, c, "a", 9, "state = ?", "nine"))
		wantNil(t, c.write(ctx, "a", 9, "UPDATE jobs SET state = 'nine'"))
	}
	wantState(t, c, "a", "nine")
	tx, err := c.BeginTx(ctx, nil)
	wantNil(t, err)
	for range 2 {
		wantNil(t, c.jobs().Advance(ctx, tx, "a", 9))
		wantNil(t, c.table().Guard(ctx, tx, "a", 9))
	}
	wantIs(t, c.jobs().Advance(ctx, tx, "c", 9), ErrNotFound) // an earlier last_insert_id of the session does not count
	wantStale(t, c.jobs().Advance(ctx, tx, "a", 8), "jobs a", 8, 9)
	wantNil(t, tx.Rollback())
}

func tokensThatDoNotFitAreRefused(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	c.run(t, "INSERT INTO jobs (id) VALUES ('a')")
	wantNil(t, c.update(ctx, c, "a", math.MaxInt64-1, "state = 'almost'"))
	wantNil(t, c.update(ctx, c, "a", math.MaxInt64, "state = 'max'"))
	wantStale(t, c.update(ctx, c, "a", math.MaxInt64-1, "state = 'x'"), "jobs a", math.MaxInt64-1, math.MaxInt64)
	marks := c.table().Marks(c.DB)
	for _, token := range []fence.Token{0, math.MaxInt64 + 1, math.MaxUint64} {
		wantIs(t, c.update(ctx, c, "a", token, "state = 'wrapped'"), fence.ErrInvalid)
		wantIs(t, c.jobs().Advance(ctx, c, "a", token), fence.ErrInvalid)
		_, err := marks.Raise(ctx, "a", token)
		wantIs(t, err, fence.ErrInvalid)
	}
	wantState(t, c, "a", "max")
	wantNil(t, c.write(ctx, "a", math.MaxInt64, "UPDATE jobs SET state = 'guarded'"))
	wantStale(t, c.write(ctx, "a", math.MaxInt64-1, "UPDATE jobs SET state = 'x'"), "a", math.MaxInt64-1, math.MaxInt64)
}

func invalidColumnsAreRefused(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	c.run(t, "INSERT INTO jobs (id, state) VALUES ('a', 'before'), ('b', 'before')")
	wantIs(t, c.update(ctx, c, "a", 1, " "), fence.ErrInvalid)
	wantIs(t, Column{Dialect: w.dialect, Table: "jobs"}.Update(ctx, c, "a", 1, "state = 'x'"), fence.ErrInvalid)
	wantIs(t, Column{}.Advance(ctx, c, "a", 1), fence.ErrInvalid)

	notUnique := c.jobs()
	notUnique.ID = "state"
	tx, err := c.BeginTx(ctx, nil)
	wantNil(t, err)
	wantIs(t, notUnique.Update(ctx, tx, "before", 1, "state = 'x'"), fence.ErrInvalid)
	wantNil(t, tx.Rollback())
	wantState(t, c, "a", "before")

	c.run(t, "DROP TABLE jobs")
	if err := c.update(ctx, c, "a", 1, "state = 'x'"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("without the table: %v", err)
	}
}

func namesAreQuoted(t *testing.T, w world) {
	c, ctx := w.open(t), t.Context()
	quote := w.dialect.quote
	table := "or\"d`er"
	c.run(t, "CREATE TABLE "+quote(table)+" ("+quote("the id")+" INTEGER PRIMARY KEY, "+quote("group")+" VARCHAR(9), "+quote("select")+" BIGINT)")
	c.run(t, "INSERT INTO "+quote(table)+" VALUES (1, 'x', 5)")
	column := Column{Dialect: w.dialect, Table: table, ID: "the id", Token: "select"}
	wantNil(t, column.Update(ctx, c, 1, 5, c.sql(quote("group")+" = ?"), "y"))
	wantStale(t, column.Update(ctx, c, 1, 4, c.sql(quote("group")+" = ?"), "z"), table+" 1", 4, 5)
	marks := Table{Dialect: w.dialect, Name: "my \"`marks"}
	wantNil(t, marks.Create(ctx, c))
	wantNil(t, marks.Create(ctx, c)) // the table exists
	tx, err := c.BeginTx(ctx, nil)
	wantNil(t, err)
	wantNil(t, marks.Guard(ctx, tx, "a'; DROP TABLE x; --", 3))
	wantNil(t, tx.Commit())
	if highest, err := marks.Highest(ctx, c, "a'; DROP TABLE x; --"); highest != 3 || err != nil {
		t.Errorf("%d, %v", highest, err)
	}
}

func guardRefusesStaleTransactions(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	wantNil(t, c.write(ctx, "import", 5, "INSERT INTO jobs (id, state) VALUES ('a', 'five')"))
	wantNil(t, c.write(ctx, "import", 5, "DELETE FROM jobs"))
	wantNil(t, c.write(ctx, "import", 6, "INSERT INTO jobs (id, state) VALUES ('a', 'six')"))
	wantStale(t, c.write(ctx, "import", 5, "DELETE FROM jobs"), "import", 5, 6)
	wantState(t, c, "a", "six")
	wantNil(t, c.write(ctx, "export", 1, "UPDATE jobs SET state = 'exported'")) // another name

	// A transaction that is rolled back raises no mark: nothing was written with that token.
	if err := c.write(ctx, "import", 9, "UPDATE nonsense"); err == nil {
		t.Error("an invalid statement succeeded")
	}
	if highest, err := c.table().Highest(ctx, c, "import"); highest != 6 || err != nil {
		t.Errorf("the mark is %d, %v", highest, err)
	}
	wantNil(t, c.write(ctx, "import", 7, "UPDATE jobs SET state = 'seven'"))

	wantIs(t, c.write(ctx, "", 7, "DELETE FROM jobs"), fence.ErrInvalid)
	wantIs(t, c.write(ctx, strings.Repeat("x", fence.MaxName+1), 7, "DELETE FROM jobs"), fence.ErrInvalid)
	tx, err := c.BeginTx(ctx, nil)
	wantNil(t, err)
	wantIs(t, Table{}.Guard(ctx, tx, "a", 1), fence.ErrInvalid)
	wantNil(t, tx.Rollback())
	wantState(t, c, "a", "seven")
}

// Names are different if they differ in case, in an accent, in spaces at the end, or in their last bytes.
func namesAreBytes(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	long := strings.Repeat("x", fence.MaxName-1)
	for i, name := range []string{"a", "A", "ä", "a ", " a", "a\t", long + "1", long + "2", long} {
		wantNil(t, c.write(ctx, name, fence.Token(100-i), "UPDATE jobs SET state = ''"))
		if highest, err := c.table().Highest(ctx, c, name); highest != fence.Token(100-i) || err != nil {
			t.Errorf("%q: %d, %v", name, highest, err)
		}
	}
}

// Until a transaction that passed Guard ends, no newer one passes. So no newer transaction is between its check and
// its commit.
func noTokenBetweenGuardAndCommit(t *testing.T, w world) {
	patient, ctx := w.withJobs(t), t.Context()
	c := w.connect(t, w.impatient(patient.dsn))
	for _, old := range []fence.Token{33, 34} { // the second time the mark already has this value
		tx, err := c.BeginTx(ctx, nil)
		wantNil(t, err)
		wantNil(t, c.table().Guard(ctx, tx, "a", old))
		if err := c.write(ctx, "a", old+1, "DELETE FROM jobs"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Fatalf("the newer token did not have to wait: %v", err)
		}
		wantNil(t, tx.Commit())
		wantNil(t, c.write(ctx, "a", old+1, "DELETE FROM jobs"))
		wantStale(t, c.write(ctx, "a", old, "DELETE FROM jobs"), "a", old, old+1)
	}
	// A refused transaction also blocks newer ones, so its error stays true until it ends.
	tx, err := c.BeginTx(ctx, nil)
	wantNil(t, err)
	wantStale(t, c.table().Guard(ctx, tx, "a", 1), "a", 1, 35)
	if err := c.write(ctx, "a", 36, "DELETE FROM jobs"); err == nil || errors.Is(err, fence.ErrStale) {
		t.Fatalf("the newer token did not have to wait: %v", err)
	}
	wantNil(t, tx.Rollback())
}

// An older holder waits for the row lock of a newer one. When the newer one has committed, the older one is refused by
// the new token; the token before it does not count.
func waitingWriterIsRefusedByTheNewerToken(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	if c.waiting == "" {
		return // SQLite runs one writing transaction at a time: noTokenBetweenGuardAndCommit shows that
	}
	c.run(t, "INSERT INTO jobs (id, state, token) VALUES ('a', 'before', 1)")
	wantNil(t, c.write(ctx, "a", 1, "UPDATE jobs SET state = 'before'"))
	newer, err := c.BeginTx(ctx, nil)
	wantNil(t, err)
	wantNil(t, c.update(ctx, newer, "a", 34, "state = 'by 34'"))
	wantNil(t, c.table().Guard(ctx, newer, "a", 34))

	late := map[string]chan error{"column": make(chan error, 1), "table": make(chan error, 1)}
	go func() { late["column"] <- c.update(ctx, c, "a", 33, "state = 'late'") }()
	c.whenWaiting(t, 1)
	go func() { late["table"] <- c.write(ctx, "a", 33, "UPDATE jobs SET state = 'late'") }()
	c.whenWaiting(t, 2)
	wantNil(t, newer.Commit())
	wantStale(t, <-late["column"], "jobs a", 33, 34)
	wantStale(t, <-late["table"], "a", 33, 34)
	wantState(t, c, "a", "by 34")
}

// A transaction reads an old snapshot, and then writes the current row.
func oldSnapshotDoesNotAdmitAStaleToken(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	if c.waiting == "" {
		return // in SQLite a transaction that has read cannot write after another one has written
	}
	c.run(t, "INSERT INTO jobs (id, state, token) VALUES ('a', 'before', 1)")
	wantNil(t, c.write(ctx, "a", 1, "UPDATE jobs SET state = 'before'"))
	for _, guard := range []func(DB, *sql.Tx) error{
		func(db DB, _ *sql.Tx) error { return c.jobs().Advance(ctx, db, "a", 33) },
		func(_ DB, tx *sql.Tx) error { return c.table().Guard(ctx, tx, "a", 33) },
	} {
		tx, err := c.BeginTx(ctx, nil)
		wantNil(t, err)
		var seen int64
		wantNil(t, tx.QueryRow("SELECT max(fencing_marks.token) FROM fencing_marks, jobs").Scan(&seen))
		if seen > 34 {
			t.Fatalf("the mark is %d already", seen)
		}
		wantNil(t, c.jobs().Advance(ctx, c, "a", 34))
		wantNil(t, c.write(ctx, "a", 34, "UPDATE jobs SET state = 'by 34'"))
		err = guard(tx, tx)
		wantIs(t, err, fence.ErrStale)
		wantNil(t, tx.Rollback())
	}
	wantState(t, c, "a", "by 34")
}

// The timeline of docs/why-tokens.md: first without a token, then with a Column, then with a Table.
func lateWritesOverwriteOnlyWithoutTokens(t *testing.T, w world) {
	ctx := t.Context()
	play := func(write func(c connection, token fence.Token, state string) error) (string, error) {
		c := w.withJobs(t)
		c.run(t, "INSERT INTO jobs (id, token) VALUES ('a', 0)")
		// Holder 33 has decided what to write, and is paused until holder 34 has written.
		wantNil(t, write(c, 34, "by 34"))
		err := write(c, 33, "by 33, late")
		return c.state(t, "a"), err
	}
	got, err := play(func(c connection, _ fence.Token, s string) error {
		_, err := c.ExecContext(ctx, c.sql("UPDATE jobs SET state = ? WHERE id = 'a'"), s)
		return err
	})
	if got != "by 33, late" || err != nil {
		t.Errorf("without a token the late write did not overwrite: %q, %v", got, err)
	}
	got, err = play(func(c connection, token fence.Token, s string) error {
		return c.update(ctx, c, "a", token, "state = ?", s)
	})
	wantStale(t, err, "jobs a", 33, 34)
	if got != "by 34" {
		t.Errorf("the state is %q", got)
	}
	got, err = play(func(c connection, token fence.Token, s string) error {
		return c.write(ctx, "jobs/a", token, "UPDATE jobs SET state = ? WHERE id = 'a'", s)
	})
	wantStale(t, err, "jobs/a", 33, 34)
	if got != "by 34" {
		t.Errorf("the state is %q", got)
	}
}

// Many holders write at the same time, each over its own connection. Each write adds a row to a history in the same
// transaction, and the history must be in the order of the tokens.
func concurrentWritesAreInTokenOrder(t *testing.T, w world) {
	const holders, writes = 32, 5
	ctx := t.Context()
	for name, update := range map[string]func(connection, fence.Token) error{
		"column": func(c connection, token fence.Token) error {
			tx, err := c.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := c.update(ctx, tx, "a", token, "runs = runs + 1"); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, c.sql("INSERT INTO history SELECT runs, ? FROM jobs"), int64(token)); err != nil {
				return err
			}
			return tx.Commit()
		},
		"table": func(c connection, token fence.Token) error {
			return c.write(ctx, "a", token, "INSERT INTO history SELECT count(*), ? FROM history", int64(token))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.withJobs(t)
			c.run(t, "CREATE TABLE history (place BIGINT PRIMARY KEY, token BIGINT NOT NULL)")
			c.run(t, "INSERT INTO jobs (id) VALUES ('a')")
			c.SetMaxIdleConns(holders)
			together(holders, func(i int) {
				for range writes {
					if err := update(c, fence.Token(1+i)); err != nil && !errors.Is(err, fence.ErrStale) {
						t.Error(err)
					}
				}
			})
			inOrder(t, c, holders, writes)
		})
	}
}

func inOrder(t *testing.T, c connection, newest, writes int) {
	t.Helper()
	rows, err := c.QueryContext(t.Context(), "SELECT token FROM history ORDER BY place")
	wantNil(t, err)
	defer rows.Close()
	var last, count int
	for rows.Next() {
		var token int
		wantNil(t, rows.Scan(&token))
		if token < last {
			t.Errorf("%d has written after %d", token, last)
		}
		if last = token; token == newest {
			count++
		}
	}
	wantNil(t, rows.Err())
	if count != writes {
		t.Errorf("the newest holder finished %d of its %d writes", count, writes)
	}
}

// Column and Table agree with a map after any sequence of operations.
func agreesWithModel(t *testing.T, w world) {
	m := model{connection: w.withJobs(t)}
	rapid.Check(t, func(r *rapid.T) {
		if m.checks > m.count && !m.failed { // enough checks for a server, unless rapid shrinks a failure
			return
		}
		defer func() { m.failed = m.failed || r.Failed() }()
		m.checks++
		m.begin(r)
		r.Repeat(map[string]func(*rapid.T){"insert": m.insert, "update": m.updateRow, "guard": m.guard, "": m.compare})
	})
}

// model is the expected content of the database.
type model struct {
	connection
	checks int
	failed bool
	row    map[string]fence.Token
	said   map[string]string
	marks  map[string]fence.Token
}

var ids = []string{"a", "b", "c"}

func (m *model) begin(r *rapid.T) {
	for _, table := range []string{"jobs", "fencing_marks"} {
		if _, err := m.Exec("DELETE FROM " + table); err != nil {
			r.Fatal(err)
		}
	}
	m.row, m.said, m.marks = map[string]fence.Token{}, map[string]string{}, map[string]fence.Token{}
}

func draw(r *rapid.T) (string, fence.Token) {
	near := rapid.OneOf(rapid.Uint64Range(1, 12), rapid.Uint64Range(math.MaxInt64-2, math.MaxInt64))
	return rapid.SampledFrom(ids).Draw(r, "id"), fence.Token(near.Draw(r, "token"))
}

func expect(r *rapid.T, err error, t, highest fence.Token) bool {
	var stale *fence.StaleError
	switch {
	case t < highest:
		if !errors.As(err, &stale) || stale.Token != t || stale.Highest != highest {
			r.Fatalf("%d after %d: %v", t, highest, err)
		}
	case err != nil:
		r.Fatalf("%d after %d: %v", t, highest, err)
	}
	return t >= highest
}

func (m *model) insert(r *rapid.T) {
	id, token := draw(r)
	if _, there := m.row[id]; there {
		return
	}
	if _, err := m.Exec(m.sql("INSERT INTO jobs (id, token) VALUES (?, ?)"), id, int64(token)); err != nil {
		r.Fatal(err)
	}
	m.row[id], m.said[id] = token, ""
}

func (m *model) updateRow(r *rapid.T) {
	id, token := draw(r)
	err := m.update(context.Background(), m, id, token, "state = ?", spelled(token))
	if _, there := m.row[id]; !there {
		if !errors.Is(err, ErrNotFound) {
			r.Fatal(err)
		}
	} else if expect(r, err, token, m.row[id]) {
		m.row[id], m.said[id] = token, spelled(token)
	}
}

func (m *model) guard(r *rapid.T) {
	name, token := draw(r)
	rollback := rapid.Bool().Draw(r, "rollback")
	tx, err := m.Begin()
	if err != nil {
		r.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	passed := expect(r, m.table().Guard(context.Background(), tx, name, token), token, m.marks[name])
	if !passed || rollback {
		return
	}
	if err := tx.Commit(); err != nil {
		r.Fatal(err)
	}
	m.marks[name] = token
}

func (m *model) compare(r *rapid.T) {
	for _, id := range ids {
		if got, err := m.table().Highest(context.Background(), m, id); err != nil || got != m.marks[id] {
			r.Fatalf("the mark of %s is %d, %v; want %d", id, got, err, m.marks[id])
		}
		if _, there := m.row[id]; !there {
			continue
		}
		var s sql.NullString
		var n int64
		err := m.QueryRow(m.sql("SELECT state, token FROM jobs WHERE id = ?"), id).Scan(&s, &n)
		if err != nil || s.String != m.said[id] || fence.Token(n) != m.row[id] {
			r.Fatalf("row %s is %q %d, %v; want %q %d", id, s.String, n, err, m.said[id], m.row[id])
		}
	}
}

func guardSavesItsMarks(t *testing.T, w world) {
	c, ctx := w.open(t), t.Context()
	guard := fence.NewGuard(fence.Config{Marks: c.table().Marks(c.DB)})
	wantIs(t, guard.Check(ctx, "a", 5), fence.ErrUnsaved) // the table does not exist yet
	wantNil(t, c.table().Create(ctx, c))
	wantNil(t, guard.Check(ctx, "a", 5))
	restarted := fence.NewGuard(fence.Config{Marks: c.table().Marks(c.DB)})
	wantStale(t, restarted.Check(ctx, "a", 4), "a", 4, 5)
	wantNil(t, restarted.Check(ctx, "a", 6))
}

func marksRequireADurableDatabase(t *testing.T, w world) {
	c, ctx := w.withJobs(t), t.Context()
	if w.careless == nil { // MariaDB has this setting only for the whole server
		c.run(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 2")
		defer c.run(t, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
	} else {
		c = w.connect(t, w.careless(c.dsn))
	}
	_, err := c.table().Marks(c.DB).Raise(ctx, "a", 5)
	if err == nil || !strings.Contains(err.Error(), "power cut") {
		t.Errorf("got %v", err)
	}
	if highest, err := c.table().Highest(ctx, c, "a"); highest != 0 || err != nil {
		t.Errorf("the mark is %d, %v", highest, err)
	}
}
