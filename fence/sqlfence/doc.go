// Package sqlfence refuses stale writes in a SQL database, in the statement or the transaction that writes.
//
// # What it promises
//
// Once a newer token has written a row with [Column.Update], or raised its token with [Column.Advance], no older
// token changes it. Transactions of one name that begin with [Table.Guard] commit in the order of their tokens,
// and no newer transaction comes between the check and the commit of another. The database makes the check and
// the write one step, so it does not matter where a program is paused.
//
// A token above 9223372036854775807 does not fit SQL's integers and is refused with [fence.ErrInvalid]; it is
// never stored as something else.
//
// # How it works
//
// There are two forms. Where the table can have a column for the token, [Column] writes
//
//	UPDATE jobs SET state = ?, token = ? WHERE id = ? AND token <= ?
//
// and, if that changed nothing, looks for the reason: a newer token, or no such row. Where the resource has
// no column, or is several rows or none yet, [Table] keeps one row for each name in a table of its own, and
// Guard raises it in the caller's transaction. [Table.Marks] lets a [fence.Guard] save its marks there.
//
// Both forms rely on the row lock. If two transactions write the same row, the second one waits for the first.
// It then decides by the row that the first one left, even if it read an older version of the row before. A
// [Dialect] holds the differences between databases: [SQLite], [PostgreSQL], and [MariaDB], which also works
// with MySQL. Any driver works. The tests use github.com/jackc/pgx on PostgreSQL 15,
// github.com/go-sql-driver/mysql on MariaDB 10.11, and modernc.org/sqlite.
//
// # What it never does
//
// It neither begins nor ends the caller's transactions; only Marks has transactions of its own. It does not
// retry when the database is busy, or ends a deadlock. It does not protect rows against statements that do not
// go through it. It does not protect a row that was deleted, because its token was deleted with it: if rows come
// and go, use a Table.
package sqlfence
