package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper/fence"
)

// world is one kind of database. Tests write ? for arguments, and TEXT_ID for a text that can be a key.
type world struct {
	dialect Dialect
	driver  string
	fresh   func(t testing.TB) (dsn string) // makes an empty database
	// impatient and careless change a DSN. With impatient a statement that waits for a lock fails soon. With careless
	// a power cut may undo a commit; nil if a connection cannot choose that.
	impatient, careless func(dsn string) string
	words               *strings.Replacer
	waiting             string // the query that counts the transactions that wait for a lock; empty if there is none
	count               int    // the number of checks of the model, bounded because servers sync each commit
}

// connection is an open database of one kind.
type connection struct {
	world
	*sql.DB
	dsn string
}

func (w world) table() Table { return Table{Dialect: w.dialect} }

func (w world) jobs() Column {
	return Column{Dialect: w.dialect, Table: "jobs", ID: "id", Token: "token"}
}

var placeholders = regexp.MustCompile(`\?`)

// sql translates a statement to the dialect of this database.
func (w world) sql(statement string) string {
	n := 0
	return w.words.Replace(placeholders.ReplaceAllStringFunc(statement, func(string) string {
		n++
		return w.dialect.placeholder(n)
	}))
}

func (w world) connect(t testing.TB, dsn string) connection {
	t.Helper()
	db, err := sql.Open(w.driver, dsn)
	wantNil(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return connection{w, db, dsn}
}

func (w world) open(t testing.TB) connection {
	t.Helper()
	return w.connect(t, w.fresh(t))
}

// withJobs opens a database with the table jobs, which has a token column, and a table of marks.
func (w world) withJobs(t testing.TB) connection {
	t.Helper()
	c := w.open(t)
	c.run(t, "CREATE TABLE jobs (id TEXT_ID PRIMARY KEY, state TEXT, runs INTEGER NOT NULL DEFAULT 0, token BIGINT)")
	wantNil(t, w.table().Create(t.Context(), c))
	return c
}

func (c connection) run(t testing.TB, statement string, args ...any) {
	t.Helper()
	if _, err := c.ExecContext(context.Background(), c.sql(statement), args...); err != nil {
		t.Fatal(err)
	}
}

func (c connection) state(t testing.TB, id string) string {
	t.Helper()
	var s sql.NullString
	wantNil(t, c.QueryRowContext(context.Background(), c.sql("SELECT state FROM jobs WHERE id = ?"), id).Scan(&s))
	return s.String
}

// update writes a row of jobs through its token column.
func (c connection) update(ctx context.Context, db DB, id any, token fence.Token, set string, args ...any) error {
	return c.jobs().Update(ctx, db, id, token, c.sql(set), args...)
}

// write runs a transaction that begins with Guard.
func (c connection) write(ctx context.Context, name string, token fence.Token, statement string, args ...any) error {
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := c.table().Guard(ctx, tx, name, token); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, c.sql(statement), args...); err != nil {
		return err
	}
	return tx.Commit()
}

// whenWaiting returns when that many transactions wait for a lock.
func (c connection) whenWaiting(t testing.TB, many int) {
	t.Helper()
	// MariaDB updates its answer at most ten times a second.
	const pause = 120 * time.Millisecond
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(pause) {
		var n int
		wantNil(t, c.QueryRowContext(t.Context(), c.waiting).Scan(&n))
		if n == many {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("%d wait for a lock, want %d", n, many)
		}
	}
}

var sqliteWorld = world{
	dialect: SQLite,
	driver:  "sqlite",
	fresh: func(t testing.TB) string { // in a file, because a database in memory has only one connection
		return "file:" + filepath.Join(t.TempDir(), "test.db") + "?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)"
	},
	impatient: func(dsn string) string { return strings.ReplaceAll(dsn, "60000", "0") },
	careless:  func(dsn string) string { return dsn + "&_pragma=synchronous(NORMAL)" },
	words:     strings.NewReplacer("TEXT_ID", "TEXT"),
	count:     30,
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

func wantState(t testing.TB, c connection, id, want string) {
	t.Helper()
	if got := c.state(t, id); got != want {
		t.Errorf("the state is %q, want %q", got, want)
	}
}

func spelled(t fence.Token) string { return strconv.FormatUint(uint64(t), 10) }

// together runs a number of goroutines and waits for them.
func together(n int, work func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { work(i) })
	}
	group.Wait()
}
