// Package gooselease makes a lease the migration lock of goose v3 ([github.com/pressly/goose/v3]). The lease can be in any
// store of Leasekeeper, and the migrated database can be behind a pooler of connections such as pgbouncer.
//
// # What is promised
//
//   - Of all providers with a [Locker] of one name, on one store, one at a time migrates. The others wait, and then find
//     nothing to do.
//   - The context of a migration ends before another process can hold the name. goose then rolls the migration's
//     transaction back, or interrupts its statement, and applies no further migration. The exceptions are those of package
//     leasekeeper: a process that is not running at that moment, and an operator who ends the lease by force.
//   - The name is never released while goose still migrates: not when its context ends, nor when the keeper is closed.
//   - With [Locker.Gated], a migration in a transaction commits only while the lease is held, even in a process that was
//     paused. That needs the lease in the migrated database.
//   - A migrator that dies keeps the name until the TTL has passed. Then the next one migrates.
//
// # How it works
//
// goose calls [Locker.Lock] before it reads which migrations were applied, and [Locker.Unlock] after the last one. Lock
// claims the name with [leasekeeper.Keeper.Run], whose function returns when Unlock is called. A lock of goose cannot
// replace the context of a migration. So [Locker.Run] makes the context first, and Lock finds it in the one that goose
// passes on. Lock refuses any other context: it could not end it.
//
// # What it never does
//
// It sends nothing to the migrated database: no lock, no table, no session. It does not stop a statement on a server that
// the program can no longer reach. It does not lock the calls of a provider for which goose takes no lock: GetVersions
// and HasPending. It starts one goroutine for each lock that is held or waited for.
package gooselease
