package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// SQLite is the dialect of SQLite, 3.24 or later. Its columns take values of any type whatever they are
// declared as, so the type of each token is checked: texts, and numbers with a fraction, never pass.
//
// A transaction should begin with its first write, as it does here if Guard comes first: one that has read
// before it writes fails as busy if another wrote meanwhile. Set a busy timeout, so that writers wait for
// each other.
var SQLite Dialect = sqlite{}

type sqlite struct{}

func (sqlite) placeholder(int) string { return "?" }

func (sqlite) quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func (d sqlite) passes(column string, n int) string {
	// A declared type can make a comparison one of texts, where 9 is above 10; in an expression it has no say.
	return fmt.Sprintf("typeof(%[1]s) IN ('integer', 'null') AND coalesce(%[1]s, 0) BETWEEN 0 AND %[2]s", column, d.placeholder(n))
}

func (d sqlite) assign(n int) string { return d.placeholder(n) }

func (sqlite) changed(result sql.Result, _ int64) (int64, error) { return result.RowsAffected() }

func (sqlite) newest() string { return "" } // a transaction that has tried to write sees what the others committed

func (sqlite) number(stored any) any { return stored }

func (d sqlite) createMarks(table string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("name" TEXT NOT NULL PRIMARY KEY, "token" INTEGER NOT NULL CHECK (typeof("token") = 'integer' AND "token" > 0))`, d.quote(table))
}

func (d sqlite) raiseMark(table string) string {
	q := d.quote(table)
	return fmt.Sprintf(`INSERT INTO %[1]s ("name", "token") VALUES (?, ?) ON CONFLICT ("name") DO UPDATE SET "token" = excluded."token" WHERE typeof(%[1]s."token") = 'integer' AND %[1]s."token" BETWEEN 0 AND excluded."token"`, q)
}

func (sqlite) durable(ctx context.Context, tx *sql.Tx) error {
	const full = 2
	var level int
	if err := tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return err
	}
	if level < full {
		return fmt.Errorf("the database is opened with synchronous = %d, so a power cut may undo what was committed: open it with synchronous = FULL", level)
	}
	return nil
}
