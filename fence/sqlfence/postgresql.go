package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// PostgreSQL is the dialect of PostgreSQL, 9.5 or later, at any isolation level. What is to be set is written
// with $1, $2 and so on. A token column must be BIGINT, INTEGER or SMALLINT; others let nobody write. Names
// of marks are texts, valid UTF-8 without NUL.
//
// At READ COMMITTED, which is the default, a writer waits for the one before it and then looks at what that
// one left. At the levels above it fails, as always there, if another has written since its transaction
// began: with a serialization error of the database.
var PostgreSQL Dialect = postgresql{}

type postgresql struct{}

func (postgresql) placeholder(n int) string { return fmt.Sprintf("$%d", n) }

func (postgresql) quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

const integers = "('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype)"

func (d postgresql) passes(column string, n int) string {
	return fmt.Sprintf("pg_typeof(%[1]s) IN %[3]s AND coalesce(%[1]s, 0) BETWEEN 0 AND %[2]s::bigint", column, d.placeholder(n), integers)
}

func (d postgresql) assign(n int) string { return d.placeholder(n) + "::bigint" }

func (postgresql) changed(result sql.Result, _ int64) (int64, error) { return result.RowsAffected() }

func (postgresql) newest() string { return "" } // each statement does, where the attempt to write did not fail

func (postgresql) number(stored any) any { return stored }

func (d postgresql) createMarks(table string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("name" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL CHECK ("token" > 0))`, d.quote(table))
}

// A row that ON CONFLICT finds is locked also if it is not changed then.
func (d postgresql) raiseMark(table string) string {
	q := d.quote(table)
	return fmt.Sprintf(`INSERT INTO %[1]s ("name", "token") VALUES ($1, $2::bigint) ON CONFLICT ("name") DO UPDATE SET "token" = excluded."token" WHERE pg_typeof(%[1]s."token") IN %[2]s AND %[1]s."token" BETWEEN 0 AND excluded."token"`, q, integers)
}

func (postgresql) durable(ctx context.Context, tx *sql.Tx) error {
	var commit, fsync string
	if err := tx.QueryRowContext(ctx, "SELECT current_setting('synchronous_commit'), current_setting('fsync')").Scan(&commit, &fsync); err != nil {
		return err
	}
	if commit == "off" || fsync == "off" {
		return fmt.Errorf("the database is set up with synchronous_commit = %s and fsync = %s, so a power cut may undo what was committed: switch both on", commit, fsync)
	}
	return nil
}
