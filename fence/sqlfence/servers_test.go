//go:build unix

package sqlfence

import (
	"net/url"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/leasekeeper/leasekeeper/internal/test/databases"
)

func TestStaleWritesAreRefusedInPostgreSQL(t *testing.T) { runSuite(t, postgresqlWorld(t)) }

func TestStaleWritesAreRefusedInMariaDB(t *testing.T) { runSuite(t, mariadbWorld(t)) }

// postgresqlWorld starts a PostgreSQL server for t and its subtests.
func postgresqlWorld(t *testing.T) world {
	server := databases.PostgreSQL(t)
	return world{
		dialect:   PostgreSQL,
		driver:    "pgx",
		fresh:     func(t testing.TB) string { return server.Database(t) },
		impatient: func(dsn string) string { return withParameter(dsn, "lock_timeout", "50") },
		careless:  func(dsn string) string { return withParameter(dsn, "synchronous_commit", "off") },
		words:     strings.NewReplacer("TEXT_ID", "TEXT"),
		waiting:   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
		count:     30,
	}
}

func withParameter(dsn, key, value string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	q := u.Query()
	q.Set(key, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// mariadbWorld starts a MariaDB server for t and its subtests.
func mariadbWorld(t *testing.T) world {
	server := databases.MariaDB(t)
	return world{
		dialect:   MariaDB,
		driver:    "mysql",
		fresh:     func(t testing.TB) string { return server.Database(t) },
		impatient: func(dsn string) string { return dsn + "?innodb_lock_wait_timeout=0" },
		words:     strings.NewReplacer("TEXT_ID", "VARCHAR(100)"),
		waiting:   "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
		count:     30,
	}
}
