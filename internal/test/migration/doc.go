// Package migration is what the tests of migration locks share: migrated databases with stores of leases beside them, and a
// migrator that is killed.
//
// It promises that a test runs in each way in which migrators reach PostgreSQL: directly and behind pgbouncer in
// transaction mode, with the lease in the same database and in a SQLite file.
//
// It knows no library for migrations, and is linked into no program.
package migration
