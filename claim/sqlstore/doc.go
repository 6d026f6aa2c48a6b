// Package sqlstore has the SQL with which leases are kept in a database, and no driver for any.
//
// It promises what [claim.Store] asks for, on whatever runs its statements as they are and tells truly what
// became of them: a [DB]. Packages backend/postgres and backend/sqlite have one each; the differences between the
// databases are behind [Dialect].
//
// # How it works
//
// There are four tables, and on PostgreSQL a fifth, for tickets (queue.go): one row for each name, for what each machine has observed of a name, for each machine's
// clock, and for each namespace. [Schema] prints them; each column says what it is for. All that is kept can be
// read in the database's own shell, and put right there.
//
// Everything is a single statement that decides for itself, and mostly a transaction of its own. So nothing depends on
// which connection it runs on, or on its isolation level, and a pool that changes connections at each statement does no harm.
// A read tells the record and the floor as of one moment. A write compares the op, and the mode of the namespace,
// in the statement that writes. Names and all other values are arguments, never parts of statements; names are
// compared by their bytes, and listed by ranges, never by patterns.
//
// A claim of a free name is two statements: one that reads and one that writes. If the name has no record yet, these
// come after two more, which make it; of a name that the same program has given back, and nobody has had since, only
// the second is needed. A release is one that adds to the tenures in column recent, which is short; one in some puts
// them all into column past. A write that did not happen is followed by a question why, if it was not for the op. All
// renewals of a keeper are one, which writes only what a renewal changes.
//
// Where the database can ([Grouper]), claims and releases that come while others are under way go together, as one
// transaction: what costs most is to commit. Each is still a statement of its own, done or not as if it were alone, and
// those of a group wait for no lock: one that would have to is skipped there, and then waits by itself. Who writes alone
// never waits for others.
//
// # What it never does
//
// It reads no clock of its own but to limit how often a busy database is asked again, answers from no memory (it
// only remembers what the text of a past means), keeps no transaction open while it decides anything, and deletes no
// record but by Remove. It changes no table that is there: a schema of another version than the program's is refused.
//
// What each machine has observed of a name stays until a collection finds that it was replaced, or the record is removed:
// at most one row for each name and boot of a machine.
package sqlstore
