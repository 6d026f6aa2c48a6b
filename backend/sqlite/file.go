package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite" // also registers the driver
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// readers is how many connections read at the same time for one store. More would only take memory.
const readers = 4

// file runs statements in a SQLite database.
type file struct {
	db         *sql.DB
	reading    chan struct{}
	writerSlot chan struct{} // has room for one; the slot of the file's writerQueue once the file is known
	path       string        // empty if there is no file, or it is unknown
	info       os.FileInfo   // of the file that was opened
	leaveQueue func()        // leaves the writerQueue; nil before it is joined
	wal        bool          // the file is in WAL mode
	own        bool          // this package opened the database, so its settings are those of all others that it opened
	queue      *writeQueue
	now        func() time.Time // the clock of this process, for waiting writes

	prepared prepared
}

func newFile(db *sql.DB, own bool) *file {
	return &file{db: db, own: own, queue: &writeQueue{}, reading: make(chan struct{}, readers), writerSlot: make(chan struct{}, 1), now: time.Now}
}

// identify notes which file was opened, and joins its writerQueue.
func (f *file) identify(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("sqlite: open: %w: %w", backend.ErrUnavailable, err)
	}
	l := writerQueueOf(info)
	f.path, f.info, f.writerSlot, f.leaveQueue = path, info, l.slot, sync.OnceFunc(l.leave)
	if f.own {
		f.queue = &l.writes
	}
	return nil
}

// close releases the resources of the store.
func (f *file) close() {
	_ = f.prepared.close() // the database is closed already, or will be now
	if f.leaveQueue != nil {
		f.leaveQueue()
	}
}

// checkSameFile returns an error if the file was deleted or replaced since it was opened. A process that has it
// open would go on with data that no other process can see.
func (f *file) checkSameFile() *sqlstore.Failure {
	if f.path == "" {
		return nil
	}
	info, err := os.Stat(f.path)
	if err == nil && os.SameFile(info, f.info) {
		return nil
	}
	if err == nil {
		err = errors.New("another file stands in its place")
	}
	return &sqlstore.Failure{Kind: backend.ErrUnavailable, Advice: "the file " + f.path + " was removed or replaced while it was open: put it back, or start this program again", Err: err}
}

// Query implements [sqlstore.DB].
func (f *file) Query(ctx context.Context, statement string, args ...any) ([][]any, error) {
	prepared, err := f.prepared.get(ctx, f.db, statement)
	if f := failureOf(err, false); f != nil {
		return nil, f
	}
	if !strings.HasPrefix(statement, "SELECT") {
		rows, failed := f.write(ctx, statement, prepared, args)
		if failed != nil {
			return nil, failed
		}
		return rows, nil
	}
	leave, err := f.enter(ctx, f.reading)
	if err != nil {
		return nil, err
	}
	defer leave()
	rows, err := runStatement(ctx, prepared, args)
	if f := failureOf(err, false); f != nil {
		return nil, f
	}
	return rows, nil
}

// enter waits for a free slot.
func (f *file) enter(ctx context.Context, slot chan struct{}) (leave func(), err error) {
	select {
	case slot <- struct{}{}:
	case <-ctx.Done():
		return nil, &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: ctx.Err()}
	}
	leave = func() { <-slot }
	if failed := f.checkSameFile(); failed != nil {
		leave()
		return nil, failed
	}
	return leave, nil
}

// runStatement returns all rows. A statement that writes is committed when it has returned its last row.
func runStatement(ctx context.Context, statement *sql.Stmt, args []any) ([][]any, error) {
	rows, err := statement.QueryContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	return sqlstore.ScanAll(rows)
}

// runWrite is runStatement for a statement that writes, with its text. To read rows that say only that the statement has
// written would take database/sql longer than the statement itself takes, so runWrite counts them instead.
func runWrite(ctx context.Context, text string, statement *sql.Stmt, args []any) ([][]any, error) {
	if !strings.HasSuffix(text, sqlstore.SQLiteWritten) {
		return runStatement(ctx, statement, args)
	}
	done, err := statement.ExecContext(ctx, args...)
	if err != nil {
		return nil, err
	}
	n, err := done.RowsAffected()
	rows := make([][]any, n)
	for i := range rows {
		rows[i] = []any{int64(1)}
	}
	return rows, err
}

// Script implements [sqlstore.DB].
func (f *file) Script(ctx context.Context, statements string) error {
	leave, err := f.enter(ctx, f.writerSlot)
	if err != nil {
		return err
	}
	defer leave()
	tx, failed := f.db.BeginTx(ctx, nil)
	if failed == nil {
		if _, failed = tx.ExecContext(ctx, statements); failed == nil {
			failed = tx.Commit()
		} else {
			failed = errors.Join(failed, tx.Rollback())
		}
	}
	if f := failureOf(failed, true); f != nil {
		return f
	}
	return nil
}

// failureOf returns what an error says about the effect of a statement, or nil if there is no error.
func failureOf(err error, writes bool) *sqlstore.Failure {
	if err == nil {
		return nil
	}
	var code int
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		code = e.Code()
	}
	f := &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: err}
	switch code & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA:
		f.Again = true
		f.Advice = "another program has locked the file for long: find the program with an open transaction"
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		f.Denied = true
		f.Advice = "the file is read-only for this user"
	case sqlite3.SQLITE_FULL:
		f.Advice = "the disk is full, or the file as large as it may be: make room"
	case sqlite3.SQLITE_CANTOPEN:
		f.Advice = "the file cannot be opened: see that its directory is there and that this user may write in it"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		f.Kind = backend.ErrCorrupt
		f.Advice = "the file is damaged, or no SQLite database: restore it, and raise the floor above all tokens that were seen"
	case sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOLFS:
	case sqlite3.SQLITE_ERROR:
		f.Kind = backend.ErrInvalid
		f.Missing = strings.Contains(err.Error(), "no such table") || strings.Contains(err.Error(), "no such column")
	case sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		f.Kind = backend.ErrInvalid
	case sqlite3.SQLITE_AUTH:
		f.Kind, f.Denied = backend.ErrInvalid, true
	default:
		f.Kind = uncertainKind(err, writes)
	}
	return f
}

// uncertainKind returns the kind of an error that does not say whether anything was written: an error of the
// disk, of the context, or an unknown one.
func uncertainKind(err error, writes bool) error {
	switch {
	case errors.Is(err, errStatementsClosed),
		strings.Contains(err.Error(), "sql: database is closed"), // database/sql has no value for these
		strings.Contains(err.Error(), "sql: statement is closed"):
		return backend.ErrClosed
	case writes:
		return backend.ErrUnknownOutcome
	}
	return backend.ErrUnavailable
}
