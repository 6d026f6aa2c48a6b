package sqlfence

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
)

// MariaDB is the dialect of MariaDB, 10.2 or later, and of MySQL, 5.7 or later, at any isolation level. Tables
// must be transactional, as InnoDB's are. A token column must be BIGINT, and not of a kind that can be clipped:
// the dialect does not see it if the server is set up to store what does not fit as something else.
//
// At REPEATABLE READ, which is the default, a transaction reads the rows as they were at its first look, but
// writes those that are there now. So does this: it is not misled by what the transaction has read before.
// After an UPDATE the session's last_insert_id() is the token.
//
// Writers that come at the same time for a name that has no mark yet may find themselves in a deadlock: the
// server breaks it and one of them gets its error 1213, which it may repeat.
var MariaDB Dialect = mariadb{}

type mariadb struct{}

func (mariadb) placeholder(int) string { return "?" }

func (mariadb) quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (d mariadb) passes(column string, n int) string { return d.notAbove(column, d.placeholder(n)) }

// notAbove is true of what is an integer, or nothing, and not above another. It first looks at the digits,
// because a text or a fraction in a comparison is made a number that is near it.
func (mariadb) notAbove(column, other string) string {
	return fmt.Sprintf("coalesce(cast(%[1]s AS char), '0') REGEXP '^[0-9]+$' AND coalesce(cast(%[1]s AS unsigned), 0) <= cast(%[2]s AS unsigned)", column, other)
}

// assign has the statement tell which token it has assigned: that a row was found is not told by the number of
// the changed ones, among which a row that was the same before is not counted.
func (d mariadb) assign(n int) string { return "last_insert_id(" + d.placeholder(n) + ")" }

func (mariadb) changed(result sql.Result, t int64) (int64, error) {
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

// newest asks for a lock, since only what is locked is read as it is now.
func (mariadb) newest() string { return " FOR UPDATE" }

// number reads digits: that is how some drivers hand over all that they read, and old ones integers.
func (mariadb) number(stored any) any {
	if digits, ok := stored.([]byte); ok {
		if n, err := strconv.ParseUint(string(digits), 10, 64); err == nil {
			return n
		}
	}
	return stored
}

// Names are bytes, lest those that differ in an accent or in case share a mark.
func (d mariadb) createMarks(table string) string {
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (`name` VARBINARY(1024) NOT NULL PRIMARY KEY, `token` BIGINT NOT NULL CHECK (`token` > 0)) ENGINE = InnoDB ROW_FORMAT = DYNAMIC", d.quote(table))
}

// A row that ON DUPLICATE KEY finds is locked also if it stays the same.
func (d mariadb) raiseMark(table string) string {
	q := d.quote(table)
	return fmt.Sprintf("INSERT INTO %[1]s (`name`, `token`) VALUES (?, ?) ON DUPLICATE KEY UPDATE `token` = if(%[2]s, values(`token`), %[1]s.`token`)",
		q, d.notAbove(q+".`token`", "values(`token`)"))
}

func (mariadb) durable(ctx context.Context, tx *sql.Tx) error {
	var flush, binlog, sync int64
	if err := tx.QueryRowContext(ctx, "SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog").Scan(&flush, &binlog, &sync); err != nil {
		return err
	}
	if flush == 0 || flush == 2 {
		return fmt.Errorf("the database is set up with innodb_flush_log_at_trx_commit = %d, so a power cut may undo what was committed: set it to 1", flush)
	}
	if binlog != 0 && sync != 1 { // what is not in it is rolled back after a crash
		return fmt.Errorf("the database is set up with log_bin on and sync_binlog = %d, so a power cut may undo what was committed: set it to 1", sync)
	}
	return nil
}
