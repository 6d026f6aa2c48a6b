// Package sqlstore has the SQL that keeps leases in a database. It contains no database driver.
//
// It promises what [claim.Store] requires, on any [DB] that runs its statements unchanged and reports their
// outcome truthfully. Packages backend/postgres and backend/sqlite each have one. [Dialect] hides the
// differences between the databases.
//
// # How it works
//
// There are four tables. They have one row for each name, for each machine's observation of a name, for each
// machine's clock, and for each namespace. On PostgreSQL a fifth keeps tickets (queue.go). [Schema] prints
// them; the comment of each column says what it is for. People can read all of it in the database's own shell,
// and correct it there.
//
// Every change is a single statement that decides for itself, and mostly a transaction of its own. So nothing
// depends on the connection or its isolation level, and a pool that changes connections at each statement does
// no harm. A read returns the record and the floor as of one moment. A write compares the op, and the mode of
// the namespace, in the statement that writes. Names and all other values are arguments, never parts of
// statements. Names are compared by their bytes, and listed by ranges, never by patterns.
//
// A claim of a free name is two statements: one read and one write. If the name has no record yet, two more
// statements come first, which create it. If the same program released the name, and no client has had it
// since, the claim needs only the write. A release adds the tenure to column recent, which is short; now and
// then one moves them all into column past. If a write did not happen for another reason than the op, one more
// statement finds that reason. All renewals of a keeper are one statement, which writes only the columns that a
// renewal changes.
//
// Claims and releases that come while others are under way gather, and go together in one statement. Each is done
// or not as if it were alone. The statement waits for no lock: it skips a row that another transaction has locked,
// and the write of that row then waits on its own. Whatever the statement has not written is tried alone, unless its
// outcome is unknown. A single writer never waits for others. Stores that [SharedDB] allows to share a database do so
// together. On SQLite, package backend/sqlite commits waiting writes together instead.
//
// # What it never does
//
// It reads its own clock only to limit how often a busy database is asked again. It answers no read from
// memory; it only remembers the meaning of a past's text. It keeps no transaction open while it decides
// anything, and deletes a record only in Remove. It changes no existing table, except that it adds the column
// of marks to one that lacks it. It refuses a schema of another version than the program's.
//
// The observation of a name by a machine stays until a collection finds it replaced, or the record is removed.
// There is at most one row for each name and boot of a machine.
package sqlstore
