package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// MariaDB is the dialect of MariaDB, 10.2 or later, and of MySQL, 5.7 or later, at any isolation level. Tables
// must be transactional, as InnoDB's are. A token column must be BIGINT. With a smaller type, a server without
// strict mode may store another number than the token, and the dialect does not notice.
//
// At REPEATABLE READ, which is the default, a transaction reads rows as they were at its first read, but writes
// their current versions. The dialect decides by the current versions. After an UPDATE the session's
// last_insert_id() is the token.
//
// Concurrent writers to a name without a mark may deadlock. Then the server ends one of them with its error
// 1213, and that writer may repeat its transaction.
var MariaDB Dialect = mariadbDialect{}

type mariadbDialect struct{}

func (mariadbDialect) placeholder(int) string { return "?" }

func (mariadbDialect) quote(name string) string {
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

func (d mariadbDialect) passes(column string, n int) string {
	return d.notAbove(column, d.placeholder(n))
}

// notAbove returns a condition: the column holds an integer that is not above other, or NULL. It first checks the
// digits, because a comparison converts a text or a fraction to a nearby number.
func (mariadbDialect) notAbove(column, other string) string {
	return fmt.Sprintf("coalesce(cast(%[1]s AS char), '0') REGEXP '^[0-9]+$' AND coalesce(cast(%[1]s AS unsigned), 0) <= cast(%[2]s AS unsigned)", column, other)
}

// assign makes the statement report the assigned token as last_insert_id. The server does not count a matched row
// whose values stayed the same, so the count of changed rows does not show whether a row matched.
func (d mariadbDialect) assign(n int) string { return "last_insert_id(" + d.placeholder(n) + ")" }

func (mariadbDialect) changed(result sql.Result, t int64) (int64, error) {
	changed, err := result.RowsAffected()
	if err != nil || changed > 0 {
		return changed, err
	}
	assigned, err := result.LastInsertId()
	if err == nil && assigned == t {
		return 1, nil
	}
	return 0, err
}

// newest locks the row, because only a locking read returns the current version.
func (mariadbDialect) newest() string { return " FOR UPDATE" }

// number converts digits: some drivers return every value as text, and old ones return integers so.
func (mariadbDialect) number(stored any) any {
	if digits, ok := stored.([]byte); ok {
		if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
			return n
		}
	}
	return stored
}

// createMarks stores names as bytes, so that names that differ in case or in an accent have different marks.
func (d mariadbDialect) createMarks(table string) string {
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (`name` VARBINARY(1024) NOT NULL PRIMARY KEY, `token` BIGINT NOT NULL CHECK (`token` > 0)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC", d.quote(table))
}

// raiseMark relies on ON DUPLICATE KEY, which locks the row even if it stays the same.
func (d mariadbDialect) raiseMark(table string) string {
	q := d.quote(table)
	return fmt.Sprintf("INSERT INTO %[1]s (`name`, `token`) VALUES (?, ?) ON DUPLICATE KEY UPDATE `token` = if(%[2]s, values(`token`), %[1]s.`token`)",
		q, d.notAbove(q+".`token`", "values(`token`)"))
}

func (mariadbDialect) durable(ctx context.Context, tx *sql.Tx) error {
	var flush, binlog, sync int64
	if err := tx.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog").Scan(&flush, &binlog, &sync); err != nil {
		return err
	}
	if flush == 0 || flush == 2 {
		return fmt.Errorf("the database has innodb_flush_log_at_trx_commit = %d, so a power cut may undo commits: set it to 1", flush)
	}
	if binlog != 0 && sync != 1 { // after a crash the server rolls back what the binary log lacks
		return fmt.Errorf("the database has log_bin on and sync_binlog = %d, so a power cut may undo commits: set sync_binlog to 1", sync)
	}
	return nil
}
