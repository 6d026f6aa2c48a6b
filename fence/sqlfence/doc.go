// Package sqlfence refuses stale writes in a SQL database, in the statement or the transaction that writes.
//
// # What it promises
//
// A row that is written with [Column.Update] never holds what an older token wrote after a newer one did or
// called [Column.Advance]. A transaction that begins with [Table.Guard] and commits was not older than any
// other that did so before it for the same name, and no newer one came between its check and its commit. The
// database makes the check and the write one step, so it does not matter where a program is paused.
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
// Guard raises it in the user's own transaction. [Table.Marks] lets a [fence.Guard] save its marks there.
//
// Both rest on what a row lock does: of two that write the same row the second one waits for the first, and
// then decides by what that one has left, whatever its transaction has read before. What differs between
// databases is behind [Dialect]: [SQLite], [PostgreSQL] and [MariaDB], which MySQL understands too. The driver
// is the user's choice. The tests use github.com/jackc/pgx, github.com/go-sql-driver/mysql and
// modernc.org/sqlite, on PostgreSQL 15, MariaDB 10.11 and the SQLite in the latter.
//
// # What it never does
//
// It begins no transaction where it is handed one, and ends none; only Marks has transactions of its own. It
// does not retry when the database is busy, or broke a deadlock. It does not protect rows against statements that do not go
// through it, nor a row that was deleted, since its token went with it: if rows come and go, use a Table.
package sqlfence
