// Package libpq runs the suites of stores and backends on PostgreSQL with drivers of database/sql that are not pgx's: lib/pq
// and pgdriver. It also runs the programs of docs/how-to/database-sql.md with GORM, sqlx and bun.
//
// It promises that a store of postgres.NewDB keeps its promises with a driver that reports less than pgx's does, also when
// the server crashes during a write.
//
// It is a module of its own, because the root module must not depend on these libraries. It has tests only, and starts the
// servers that it uses by package internal/test/databases.
package libpq
