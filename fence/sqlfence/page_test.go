package sqlfence_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/memory"
	"github.com/leasekeeper/leasekeeper/fence/sqlfence"
	"github.com/leasekeeper/leasekeeper/internal/test/pageprogram"
)

// This file holds the code of docs/how-to/protect-a-sql-row.md. TestPageShowsCodeThatRuns checks that the page shows copies
// of it.

var jobs = sqlfence.Column{Dialect: sqlfence.SQLite, Table: "jobs", ID: "id", Token: "token"}

// finishJob reads and writes a row that has a column for the token.
func finishJob(ctx context.Context, keeper *leasekeeper.Keeper, db *sql.DB) error {
	err := keeper.Run(ctx, "jobs/nightly", func(ctx context.Context, l *leasekeeper.Lease) error {
		if err := jobs.Advance(ctx, db, "nightly", l.Token()); err != nil {
			return err
		}
		var done int
		if err := db.QueryRowContext(ctx, "SELECT done FROM jobs WHERE id = ?", "nightly").Scan(&done); err != nil {
			return err
		}
		return jobs.Update(ctx, db, "nightly", l.Token(), "done = ?, state = ?", done+1, "finished")
	})
	return err
}

// importRows writes in a transaction that a table of marks protects.
func importRows(ctx context.Context, db *sql.DB, l *leasekeeper.Lease) error {
	marks := sqlfence.Table{Dialect: sqlfence.SQLite}
	if err := marks.Create(ctx, db); err != nil { // once; it is harmless to repeat
		return err
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // does nothing after the commit
	if err := marks.Guard(ctx, tx, "import", l.Token()); err != nil {
		return err // with ErrStale nothing is written, because nothing is committed
	}
	// … any statements …
	return tx.Commit()
}

func TestPageShowsCodeThatRuns(t *testing.T) {
	pageprogram.Shows(t, "../../docs/how-to/protect-a-sql-row.md", "page_test.go")
	db := open()
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "ALTER TABLE jobs ADD COLUMN done INTEGER NOT NULL DEFAULT 0"); err != nil {
		t.Fatal(err)
	}
	keeper, err := leasekeeper.New(memory.New().Backend())
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	for range 2 {
		if err := finishJob(t.Context(), keeper, db); err != nil {
			t.Error(err)
		}
		err := keeper.Run(t.Context(), "imports", func(ctx context.Context, l *leasekeeper.Lease) error { return importRows(ctx, db, l) })
		if err != nil {
			t.Error(err)
		}
	}
	var done, token int
	if err := db.QueryRowContext(t.Context(), "SELECT done, token FROM jobs").Scan(&done, &token); err != nil || done != 2 || token == 0 {
		t.Errorf("%d runs are done, with the token %d, want 2 with a token: %v", done, token, err)
	}
}
