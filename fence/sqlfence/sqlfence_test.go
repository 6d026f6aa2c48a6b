package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	_ "modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper/fence"
)

var jobs = Column{Dialect: SQLite, Table: "jobs", ID: "id", Token: "token"}

// open opens a database in a file: one in memory has no second connection.
func open(t testing.TB, settings string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db")+"?"+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

const patient = "_pragma=busy_timeout(60000)&_pragma=journal_mode(WAL)"

func run(t testing.TB, db DB, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(context.Background(), statement, args...); err != nil {
		t.Fatal(err)
	}
}

func withJobs(t testing.TB, settings string) *sql.DB {
	t.Helper()
	db := open(t, settings)
	run(t, db, `CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT, runs INTEGER NOT NULL DEFAULT 0, token INTEGER)`)
	return db
}

func state(t testing.TB, db DB, id string) string {
	t.Helper()
	var s sql.NullString
	if err := db.QueryRowContext(context.Background(), "SELECT state FROM jobs WHERE id = ?", id).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s.String
}

func wantNil(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

func wantStale(t testing.TB, err error, name string, token, highest fence.Token) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || *stale != (fence.StaleError{Name: name, Token: token, Highest: highest}) {
		t.Fatalf("got %v, want %d refused for %d at %q", err, token, highest, name)
	}
}

func TestG12StaleUpdatesChangeNothing(t *testing.T) {
	db, ctx := withJobs(t, ""), t.Context()
	run(t, db, "INSERT INTO jobs (id, token) VALUES ('a', 0), ('b', NULL)")
	for _, id := range []string{"a", "b"} {
		wantNil(t, jobs.Update(ctx, db, id, 9, "state = ?, runs = runs + 1", "nine"))
		wantNil(t, jobs.Update(ctx, db, id, 9, "state = ?", "nine again"))
		wantNil(t, jobs.Update(ctx, db, id, 10, "state = ?", "ten")) // as texts 10 comes before 9
		wantStale(t, jobs.Update(ctx, db, id, 9, "state = ?", "stale"), "jobs "+id, 9, 10)
		if got := state(t, db, id); got != "ten" {
			t.Errorf("the state is %q", got)
		}
		wantNil(t, jobs.Advance(ctx, db, id, 11))
		wantStale(t, jobs.Update(ctx, db, id, 10, "state = ?", "stale"), "jobs "+id, 10, 11)
		if got := state(t, db, id); got != "ten" {
			t.Errorf("the state is %q", got)
		}
	}
	wantIs(t, jobs.Update(ctx, db, "c", 9, "state = ?", "x"), ErrNotFound)
	wantIs(t, jobs.Advance(ctx, db, nil, 9), ErrNotFound)
}

func TestTokensThatDoNotFit(t *testing.T) {
	db, ctx := withJobs(t, ""), t.Context()
	marks := Table{Dialect: SQLite}
	wantNil(t, marks.Create(ctx, db))
	run(t, db, "INSERT INTO jobs (id) VALUES ('a')")
	wantNil(t, jobs.Update(ctx, db, "a", math.MaxInt64, "state = 'max'"))
	wantStale(t, jobs.Update(ctx, db, "a", math.MaxInt64-1, "state = 'x'"), "jobs a", math.MaxInt64-1, math.MaxInt64)
	for _, token := range []fence.Token{0, math.MaxInt64 + 1, math.MaxUint64} {
		wantIs(t, jobs.Update(ctx, db, "a", token, "state = 'wrapped'"), fence.ErrInvalid)
		wantIs(t, jobs.Advance(ctx, db, "a", token), fence.ErrInvalid)
		_, err := marks.Marks(db).Raise(ctx, "a", token)
		wantIs(t, err, fence.ErrInvalid)
	}
	if got := state(t, db, "a"); got != "max" {
		t.Errorf("the state is %q", got)
	}
}

// What is in a token column and is no token lets nobody write: neither a number that wrapped, nor a text, which
// SQLite takes in any column and compares digit by digit.
func TestCorruptTokensLetNobodyWrite(t *testing.T) {
	ctx := t.Context()
	for _, kind := range []string{"INTEGER", "TEXT", "REAL", "BLOB", ""} {
		db := open(t, "")
		run(t, db, "CREATE TABLE jobs (id TEXT PRIMARY KEY, state TEXT, token "+kind+")")
		for _, value := range []string{"-5", "'x'", "'10'", "1.5", "9e18", "x'31'"} {
			var stored any
			run(t, db, "INSERT OR REPLACE INTO jobs (id, state, token) VALUES ('a', 'before', "+value+")")
			wantNil(t, db.QueryRowContext(ctx, "SELECT token FROM jobs").Scan(&stored))
			err := jobs.Update(ctx, db, "a", 20, "state = 'after'")
			if n, whole := stored.(int64); whole && n >= 0 { // the column made a number of it
				if n <= 20 && err != nil || n > 20 && !errors.Is(err, fence.ErrStale) {
					t.Errorf("%s %s: %v", kind, value, err)
				}
				continue
			}
			if got := state(t, db, "a"); !errors.Is(err, ErrCorrupt) || got != "before" {
				t.Errorf("%s column with %s: %v, state %q", kind, value, err, got)
			}
		}
	}
}

func TestUpdateTellsWhatElseIsWrong(t *testing.T) {
	db, ctx := withJobs(t, ""), t.Context()
	run(t, db, "INSERT INTO jobs (id, state) VALUES ('a', 'before'), ('b', 'before')")
	wantIs(t, jobs.Update(ctx, db, "a", 1, " "), fence.ErrInvalid)
	wantIs(t, Column{Dialect: SQLite, Table: "jobs"}.Update(ctx, db, "a", 1, "state = 'x'"), fence.ErrInvalid)
	wantIs(t, Column{}.Advance(ctx, db, "a", 1), fence.ErrInvalid)

	notUnique := jobs
	notUnique.ID = "state"
	tx, err := db.BeginTx(ctx, nil)
	wantNil(t, err)
	wantIs(t, notUnique.Update(ctx, tx, "before", 1, "state = 'x'"), fence.ErrInvalid)
	wantNil(t, tx.Rollback())

	wantNil(t, jobs.Advance(ctx, db, "a", 1))
	run(t, db, "CREATE TRIGGER no BEFORE UPDATE ON jobs BEGIN SELECT raise(IGNORE); END")
	wantIs(t, jobs.Update(ctx, db, "a", 1, "state = 'x'"), ErrContention)
	run(t, db, "DROP TABLE jobs")
	if err := jobs.Update(ctx, db, "a", 1, "state = 'x'"); err == nil || errors.Is(err, ErrNotFound) {
		t.Errorf("without the table: %v", err)
	}
}

func TestNamesAreQuoted(t *testing.T) {
	db, ctx := open(t, ""), t.Context()
	run(t, db, `CREATE TABLE "or""der" ("the id" INTEGER PRIMARY KEY, "group" TEXT, "select" INTEGER)`)
	run(t, db, `INSERT INTO "or""der" VALUES (1, 'x', 5)`)
	c := Column{Dialect: SQLite, Table: `or"der`, ID: "the id", Token: "select"}
	wantNil(t, c.Update(ctx, db, 1, 5, `"group" = ?`, "y"))
	wantStale(t, c.Update(ctx, db, 1, 4, `"group" = ?`, "z"), `or"der 1`, 4, 5)
	marks := Table{Dialect: SQLite, Name: `my "marks"`}
	wantNil(t, marks.Create(ctx, db))
	wantNil(t, marks.Create(ctx, db)) // it is there
	_, err := marks.Marks(db).Raise(ctx, "a'; DROP TABLE x; --", 3)
	wantNil(t, err)
	if highest, err := marks.Highest(ctx, db, "a'; DROP TABLE x; --"); highest != 3 || err != nil {
		t.Errorf("%d, %v", highest, err)
	}
}

// write is a transaction of a holder that guards a resource without a column.
func write(ctx context.Context, db *sql.DB, name string, token fence.Token, statement string, args ...any) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := (Table{Dialect: SQLite}).Guard(ctx, tx, name, token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return err
	}
	return tx.Commit()
}

func TestGuardInTheUsersTransaction(t *testing.T) {
	db, ctx := withJobs(t, ""), t.Context()
	marks := Table{Dialect: SQLite}
	wantNil(t, marks.Create(ctx, db))
	wantNil(t, write(ctx, db, "import", 5, "INSERT INTO jobs (id, state) VALUES ('a', 'five')"))
	wantNil(t, write(ctx, db, "import", 5, "DELETE FROM jobs"))
	wantNil(t, write(ctx, db, "import", 6, "INSERT INTO jobs (id, state) VALUES ('a', 'six')"))
	wantStale(t, write(ctx, db, "import", 5, "DELETE FROM jobs"), "import", 5, 6)
	if got := state(t, db, "a"); got != "six" {
		t.Errorf("the state is %q", got)
	}
	wantNil(t, write(ctx, db, "export", 1, "UPDATE jobs SET state = 'exported'")) // another name

	// A transaction that is rolled back raises no mark: nothing was written with that token.
	if err := write(ctx, db, "import", 9, "UPDATE nonsense"); err == nil {
		t.Error("nonsense was written")
	}
	if highest, err := marks.Highest(ctx, db, "import"); highest != 6 || err != nil {
		t.Errorf("the mark is %d, %v", highest, err)
	}
	wantNil(t, write(ctx, db, "import", 7, "UPDATE jobs SET state = 'seven'"))

	wantIs(t, write(ctx, db, "", 7, "DELETE FROM jobs"), fence.ErrInvalid)
	wantIs(t, write(ctx, db, strings.Repeat("x", fence.MaxName+1), 7, "DELETE FROM jobs"), fence.ErrInvalid)
	tx, err := db.BeginTx(ctx, nil)
	wantNil(t, err)
	wantIs(t, Table{}.Guard(ctx, tx, "a", 1), fence.ErrInvalid)
	wantNil(t, tx.Rollback())
}

func TestCorruptMarks(t *testing.T) {
	db, ctx := withJobs(t, ""), t.Context()
	run(t, db, `CREATE TABLE fencing_marks (name TEXT PRIMARY KEY, token)`) // not made by Create
	run(t, db, `INSERT INTO fencing_marks VALUES ('text', '7'), ('negative', -9), ('half', 7.5)`)
	run(t, db, `INSERT INTO jobs (id, state) VALUES ('a', 'before')`)
	run(t, db, `CREATE TRIGGER no BEFORE INSERT ON fencing_marks WHEN new.name = 'lost' BEGIN SELECT raise(IGNORE); END`)
	wantIs(t, write(ctx, db, "lost", 6, "DELETE FROM jobs"), ErrCorrupt)
	for _, name := range []string{"text", "negative", "half"} {
		wantIs(t, write(ctx, db, name, 6, "DELETE FROM jobs"), ErrCorrupt)
	}
	if got := state(t, db, "a"); got != "before" {
		t.Errorf("the state is %q", got)
	}
	wantNil(t, Table{Dialect: SQLite, Name: "good"}.Create(ctx, db))
	for _, token := range []string{"-1", "0", "'x'", "1.5", "NULL"} {
		if _, err := db.Exec(`INSERT INTO good (name, token) VALUES ('a', ` + token + `)`); err == nil {
			t.Errorf("the table takes %s for a token", token)
		}
	}
}

// While a transaction that passed is not over, no newer one passes: so none is between its check and its
// commit.
func TestNoTokenComesBetweenGuardAndCommit(t *testing.T) {
	db, ctx := withJobs(t, "_pragma=busy_timeout(0)"), t.Context()
	marks := Table{Dialect: SQLite}
	wantNil(t, marks.Create(ctx, db))
	for _, old := range []fence.Token{33, 34} { // the second time the mark is already what it should be
		tx, err := db.BeginTx(ctx, nil)
		wantNil(t, err)
		wantNil(t, marks.Guard(ctx, tx, "a", old))
		if err := write(ctx, db, "a", old+1, "DELETE FROM jobs"); err == nil || errors.Is(err, fence.ErrStale) {
			t.Fatalf("the newer token did not have to wait: %v", err)
		}
		wantNil(t, tx.Commit())
		wantNil(t, write(ctx, db, "a", old+1, "DELETE FROM jobs"))
	}
}

// TestTheAccidentInSQL is the timeline of docs/why-tokens.md, first without a token, then with either form.
func TestTheAccidentInSQL(t *testing.T) {
	ctx := t.Context()
	accident := func(write func(db *sql.DB, token fence.Token, state string) error) (string, error) {
		db := withJobs(t, "")
		wantNil(t, Table{Dialect: SQLite}.Create(ctx, db))
		run(t, db, "INSERT INTO jobs (id, token) VALUES ('a', 0)")
		// 33 has decided what to write, and is paused until 34 has written.
		wantNil(t, write(db, 34, "by 34"))
		err := write(db, 33, "by 33, late")
		return state(t, db, "a"), err
	}
	got, err := accident(func(db *sql.DB, _ fence.Token, s string) error {
		_, err := db.ExecContext(ctx, "UPDATE jobs SET state = ? WHERE id = 'a'", s)
		return err
	})
	if got != "by 33, late" || err != nil {
		t.Errorf("the accident did not happen: %q, %v", got, err)
	}
	got, err = accident(func(db *sql.DB, token fence.Token, s string) error {
		return jobs.Update(ctx, db, "a", token, "state = ?", s)
	})
	wantStale(t, err, "jobs a", 33, 34)
	if got != "by 34" {
		t.Errorf("the state is %q", got)
	}
	got, err = accident(func(db *sql.DB, token fence.Token, s string) error {
		return write(ctx, db, "jobs/a", token, "UPDATE jobs SET state = ? WHERE id = 'a'", s)
	})
	wantStale(t, err, "jobs/a", 33, 34)
	if got != "by 34" {
		t.Errorf("the state is %q", got)
	}
}

// TestWritersRace has many holders write at the same time over connections of their own. Each write appends
// to a history in the same transaction, and the history must be in the order of the tokens.
func TestWritersRace(t *testing.T) {
	ctx := t.Context()
	for name, update := range map[string]func(*sql.DB, fence.Token) error{
		"column": func(db *sql.DB, token fence.Token) error {
			return jobs.Update(ctx, db, "a", token, "state = coalesce(state, '') || char(?)", 64+int64(token))
		},
		"table": func(db *sql.DB, token fence.Token) error {
			return write(ctx, db, "a", token, "UPDATE jobs SET state = coalesce(state, '') || char(?)", 64+int64(token))
		},
	} {
		t.Run(name, func(t *testing.T) {
			db := withJobs(t, patient)
			wantNil(t, Table{Dialect: SQLite}.Create(ctx, db))
			run(t, db, "INSERT INTO jobs (id) VALUES ('a')")
			const holders = 8
			var group sync.WaitGroup
			for token := fence.Token(1); token <= holders; token++ {
				group.Go(func() {
					for range 10 {
						if err := update(db, token); err != nil && !errors.Is(err, fence.ErrStale) {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			history := state(t, db, "a")
			for i := 1; i < len(history); i++ {
				if history[i] < history[i-1] {
					t.Fatalf("the history is %s", history)
				}
			}
			if !strings.HasSuffix(history, "HHHHHHHHHH") {
				t.Errorf("the newest holder did not come to all its writes: %s", history)
			}
		})
	}
}

// TestAgainstModel compares both forms with a map.
func TestAgainstModel(t *testing.T) {
	db := withJobs(t, "_pragma=synchronous(OFF)&_pragma=journal_mode(MEMORY)")
	marks := Table{Dialect: SQLite}
	wantNil(t, marks.Create(t.Context(), db))
	ctx, ids := context.Background(), []string{"a", "b", "c"}
	rapid.Check(t, func(r *rapid.T) {
		run(t, db, "DELETE FROM jobs")
		run(t, db, "DELETE FROM fencing_marks")
		row, state, named := map[string]fence.Token{}, map[string]string{}, map[string]fence.Token{}
		expect := func(err error, t, highest fence.Token) bool {
			if t < highest {
				var stale *fence.StaleError
				if !errors.As(err, &stale) || stale.Token != t || stale.Highest != highest {
					r.Fatalf("%d after %d: %v", t, highest, err)
				}
				return false
			}
			if err != nil {
				r.Fatalf("%d after %d: %v", t, highest, err)
			}
			return true
		}
		draw := func(t *rapid.T) (string, fence.Token) {
			return rapid.SampledFrom(ids).Draw(t, "id"), fence.Token(rapid.OneOf(rapid.Uint64Range(1, 12), rapid.Uint64Range(math.MaxInt64-2, math.MaxInt64)).Draw(t, "token"))
		}
		r.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) {
				id, token := draw(t)
				if _, there := row[id]; !there {
					if _, err := db.Exec("INSERT INTO jobs (id, token) VALUES (?, ?)", id, int64(token)); err != nil {
						t.Fatal(err)
					}
					row[id], state[id] = token, ""
				}
			},
			"update": func(t *rapid.T) {
				id, token := draw(t)
				err := jobs.Update(ctx, db, id, token, "state = ?", token.String())
				if _, there := row[id]; !there {
					if !errors.Is(err, ErrNotFound) {
						t.Fatal(err)
					}
				} else if expect(err, token, row[id]) {
					row[id], state[id] = token, token.String()
				}
			},
			"guard": func(t *rapid.T) {
				name, token := draw(t)
				rollback := rapid.Bool().Draw(t, "rollback")
				tx, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				passed := expect(marks.Guard(ctx, tx, name, token), token, named[name])
				if passed && !rollback {
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					named[name] = token
				} else if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				for _, id := range ids {
					if got, err := marks.Highest(ctx, db, id); err != nil || got != named[id] {
						t.Fatalf("the mark of %s is %d, %v; want %d", id, got, err, named[id])
					}
					if _, there := row[id]; !there {
						continue
					}
					var s sql.NullString
					var n int64
					if err := db.QueryRow("SELECT state, token FROM jobs WHERE id = ?", id).Scan(&s, &n); err != nil || s.String != state[id] || fence.Token(n) != row[id] {
						t.Fatalf("row %s is %q %d, %v; want %q %d", id, s.String, n, err, state[id], row[id])
					}
				}
			},
		})
	})
}

func TestMarksForAGuard(t *testing.T) {
	db, ctx := open(t, ""), t.Context()
	table := Table{Dialect: SQLite}
	guard := fence.NewGuard(fence.Config{Marks: table.Marks(db)})
	wantIs(t, guard.Check(ctx, "a", 5), fence.ErrUnsaved) // there is no table yet
	wantNil(t, table.Create(ctx, db))
	wantNil(t, guard.Check(ctx, "a", 5))
	restarted := fence.NewGuard(fence.Config{Marks: table.Marks(db)})
	wantStale(t, restarted.Check(ctx, "a", 4), "a", 4, 5)
	wantNil(t, restarted.Check(ctx, "a", 6))
}

func TestMarksWantADurableDatabase(t *testing.T) {
	db, ctx := open(t, "_pragma=synchronous(NORMAL)"), t.Context()
	table := Table{Dialect: SQLite}
	wantNil(t, table.Create(ctx, db))
	_, err := table.Marks(db).Raise(ctx, "a", 5)
	if err == nil || !strings.Contains(err.Error(), "synchronous = FULL") {
		t.Errorf("got %v", err)
	}
	if highest, err := table.Highest(ctx, db, "a"); highest != 0 || err != nil {
		t.Errorf("the mark is %d, %v", highest, err)
	}
}
