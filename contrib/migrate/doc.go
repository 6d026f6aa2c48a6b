// Package migratelease makes a lease the migration lock of golang-migrate v4 ([github.com/golang-migrate/migrate/v4]). It
// wraps a driver of a database and replaces its Lock and Unlock. The lease can be in any store of Leasekeeper, and the
// migrated database can be behind a pooler of connections such as pgbouncer.
//
// # What is promised
//
//   - Of all processes with a [Driver] of one name, on one store, one at a time migrates. The others wait, and then find
//     nothing to do.
//   - Without the lease no migration begins, none runs, and no version is written: the driver refuses each call with an
//     [leasekeeper.ErrLost]. A migration during which the lease was lost stays dirty, as one that failed does.
//   - A statement of a driver from [Open] ends when the lease is lost, before another process can hold the name. The
//     exceptions are those of package leasekeeper: a process that is not running at that moment, and an operator who ends
//     the lease by force.
//   - The name is never released while a call of the driver still runs, and not between two of them before Unlock: not
//     when the context ends, nor when the keeper is closed.
//   - A migrator that dies keeps the name until the TTL has passed. Then the next one migrates, unless it finds a dirty
//     version.
//
// # How it works
//
// Lock claims the name with [leasekeeper.Keeper.Run], whose function returns when Unlock is called. Each other call of the
// driver first checks the lease.
//
// golang-migrate passes no context to a driver. So a driver from Open is on a database whose connections know the lease:
// a statement that one of them executes ends with the lease, and a transaction commits only before that. golang-migrate's
// drivers for PostgreSQL lock an advisory lock when they open the table of versions. Behind a pooler in transaction mode
// nobody can be sure to unlock that lock again. So Open holds the lease while it opens the driver, and its connections
// answer the two statements of that lock themselves.
//
// A Migrate that no longer waits for Lock, because its LockTimeout has passed, does not say so. A lock that no call follows
// within five seconds is therefore released, and the next Lock of the driver ends the wait of an earlier one.
//
// # What it never does
//
// It does not end a statement of a driver from [New]: that driver has no means for it. It does not stop a statement on a
// server that the program can no longer reach. It changes nothing about dirty versions: people decide about them. It
// starts one goroutine for each lock that is held or waited for.
package migratelease
