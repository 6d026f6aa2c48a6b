package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// SQLite is the dialect of SQLite, 3.24 or later. A column of SQLite takes values of any type, whatever its
// declared type, so the dialect checks the type of each token: texts, and numbers with a fraction, never pass.
//
// A transaction should write before it reads, which calling Guard first ensures. A transaction that reads first
// fails as busy at its first write if another one wrote meanwhile. Set a busy timeout, so that writers wait for
// each other.
var SQLite Dialect = sqliteDialect{}

type sqliteDialect struct{}

func (sqliteDialect) placeholder(int) string { return "?" }

func (sqliteDialect) quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (d sqliteDialect) passes(column string, n int) string {
	// A column declared as text compares texts, where 9 is above 10. The expression coalesce has no declared type.
	return fmt.Sprintf("typeof(%[1]s) IN ('integer', 'null') AND coalesce(%[1]s, 0) BETWEEN 0 AND %[2]s", column, d.placeholder(n))
}

func (d sqliteDialect) assign(n int) string { return d.placeholder(n) }

func (sqliteDialect) changed(result sql.Result, _ int64) (int64, error) { return result.RowsAffected() }

func (sqliteDialect) newest() string { return "" } // a transaction that has tried to write reads the latest committed rows

func (sqliteDialect) number(stored any) any { return stored }

func (d sqliteDialect) createMarks(table string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("name" TEXT NOT NULL PRIMARY KEY, "token" INTEGER NOT NULL CHECK (typeof("token") = 'integer' AND "token" > 0))`, d.quote(table))
}

func (d sqliteDialect) raiseMark(table string) string {
	q := d.quote(table)
	return fmt.Sprintf(`INSERT INTO %[1]s ("name", "token") VALUES (?, ?) ON CONFLICT ("name") DO UPDATE SET "token" = excluded."token" WHERE typeof(%[1]s."token") = 'integer' AND %[1]s."token" BETWEEN 0 AND excluded."token"`, q)
}

func (sqliteDialect) durable(ctx context.Context, tx *sql.Tx) error {
	const full = 2
	var level int
	if err := tx.QueryRowContext(ctx, "PRAGMA synchronous").Scan(&level); err != nil {
		return err
	}
	if level < full {
		return fmt.Errorf("the database is open with synchronous = %d, so a power cut may undo commits: open it with synchronous = FULL", level)
	}
	return nil
}
