// Package libpq runs the suites of stores and backends on PostgreSQL with lib/pq, the driver of database/sql that is not
// pgx's.
//
// It promises that a store of postgres.NewDB keeps its promises with a driver that reports less than pgx's does, also when
// the server crashes during a write.
//
// It is a module of its own, because the root module must not depend on lib/pq. It has tests only, and starts the servers
// that it uses by package internal/test/databases.
package libpq
