package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// PostgreSQL is the dialect of PostgreSQL, 9.5 or later, at any isolation level. The placeholders in a SET clause
// are $1, $2 and so on. A token column must be BIGINT, INTEGER or SMALLINT; with another type every write is
// refused. Names of marks are valid UTF-8 without NUL.
//
// At READ COMMITTED, which is the default, a writer waits for the writer before it and then decides by the row
// that this one left. At higher levels it fails with a serialization error of the database if another
// transaction has written the row since its own transaction began.
var PostgreSQL Dialect = postgresqlDialect{}

type postgresqlDialect struct{}

func (postgresqlDialect) placeholder(n int) string { return fmt.Sprintf("$%d", n) }

func (postgresqlDialect) quote(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

const integers = "('bigint'::regtype, 'integer'::regtype, 'smallint'::regtype)"

func (d postgresqlDialect) passes(column string, n int) string {
	return fmt.Sprintf("pg_typeof(%[1]s) IN %[3]s AND coalesce(%[1]s, 0) BETWEEN 0 AND %[2]s::bigint", column, d.placeholder(n), integers)
}

func (d postgresqlDialect) assign(n int) string { return d.placeholder(n) + "::bigint" }

func (postgresqlDialect) changed(result sql.Result, _ int64) (int64, error) {
	return result.RowsAffected()
}

func (postgresqlDialect) newest() string { return "" } // after a successful attempt to write, each statement reads the latest committed row

func (postgresqlDialect) number(stored any) any { return stored }

func (d postgresqlDialect) createMarks(table string) string {
	return fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s ("name" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL CHECK ("token" > 0))`, d.quote(table))
}

// raiseMark relies on ON CONFLICT, which locks the row even if it does not change it.
func (d postgresqlDialect) raiseMark(table string) string {
	q := d.quote(table)
	return fmt.Sprintf(`INSERT INTO %[1]s ("name", "token") VALUES ($1, $2::bigint) ON CONFLICT ("name") DO UPDATE SET "token" = excluded."token" WHERE pg_typeof(%[1]s."token") IN %[2]s AND %[1]s."token" BETWEEN 0 AND excluded."token"`, q, integers)
}

func (postgresqlDialect) durable(ctx context.Context, tx *sql.Tx) error {
	var commit, fsync string
	if err := tx.QueryRowContext(ctx, "SELECT current_setting('synchronous_commit'), current_setting('fsync')").Scan(&commit, &fsync); err != nil {
		return err
	}
	if commit == "off" || fsync == "off" {
		return fmt.Errorf("the database has synchronous_commit = %s and fsync = %s, so a power cut may undo commits: switch both on", commit, fsync)
	}
	return nil
}
