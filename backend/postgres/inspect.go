package postgres

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

func init() {
	for _, scheme := range schemes {
		backend.RegisterInspector(scheme, inspect)
	}
}

// inspectTrips is the number of small reads of which the fastest counts.
const inspectTrips = 5

// inspected is a database that is only read: each transaction is read-only.
type inspected struct{ conn *pgx.Conn }

// Query implements [sqlstore.DB].
func (i inspected) Query(ctx context.Context, statement string, args ...any) (all [][]any, _ error) {
	err := pgx.BeginTxFunc(ctx, i.conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		all, err = collect(tx.Query(ctx, statement, args...))
		return err
	})
	if err != nil {
		return nil, failure(err)
	}
	return all, nil
}

// Script implements [sqlstore.DB]. It refuses: nothing is changed.
func (inspected) Script(context.Context, string) error {
	return &sqlstore.Failure{Kind: backend.ErrInvalid, Err: fmt.Errorf("an inspection changes nothing")}
}

// inspect implements [backend.Inspector].
func inspect(ctx context.Context, u *url.URL) (found backend.Inspection, err error) {
	rest, c, _, err := parse(u, Config{})
	if err != nil {
		return found, err
	}
	settings, err := pgxpool.ParseConfig(rest) // it knows the settings of pools, which the URL may have
	if err != nil {
		return found, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	if severalServers(settings.ConnConfig) && settings.ConnConfig.ValidateConnect == nil { // only one of them is the primary
		settings.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing stays prepared in a pooler's session
	conn, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	if err != nil {
		return found, openFailed(acquireFailure(err))
	}
	defer conn.Close(context.WithoutCancel(ctx)) // its error does not matter: nothing was changed
	db, shared := inspected{conn}, c.shared()
	if shared.Prefix == "" {
		shared.Prefix = sqlstore.DefaultPrefix
	}
	if err := readSettings(ctx, db, &shared, &found); err != nil {
		return found, err
	}
	if err := readClock(ctx, db, &found); err != nil {
		return found, err
	}
	found.Newest = sqlstore.Version
	found.Schema, err = sqlstore.TablesVersion(ctx, db, sqlstore.PostgreSQL, shared)
	return found, err
}

// severalServers reports whether settings name more than one server.
func severalServers(c *pgx.ConnConfig) bool {
	return slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return f.Host != c.Host || f.Port != c.Port })
}

// readSettings reads the version and the settings of the server, and completes the schema of the tables.
func readSettings(ctx context.Context, db sqlstore.DB, c *sqlstore.Config, found *backend.Inspection) error {
	rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, `SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('fsync'),
		current_setting('synchronous_commit'), current_setting('full_page_writes'),
		coalesce((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(quote_ident($1))), current_schema())::text,
		coalesce((SELECT c.relpersistence FROM pg_class c WHERE c.oid = to_regclass(quote_ident($1))), 'p')::text`, c.Prefix+"namespace")
	if failed != nil {
		return openFailed(failed)
	}
	text := func(i int) string { value, _ := rows[0][i].(string); return value }
	if c.Schema == "" {
		c.Schema = text(5)
	}
	found.Server = "PostgreSQL " + text(0)
	role := backend.Setting{Name: "role", Value: "primary"}
	if standby, _ := rows[0][1].(bool); standby {
		role = backend.Setting{Name: "role", Value: "standby", Fix: "connect to the primary: a standby takes no writes and may return old data"}
	}
	found.Settings = []backend.Setting{
		role,
		mustBe(c, "fsync", text(2), "off", "set fsync = on: a crash may undo acknowledged writes"),
		mustBe(c, "synchronous_commit", text(3), "off", "set synchronous_commit = on for this user: a crash may undo acknowledged writes"),
		mustBe(c, "full_page_writes", text(4), "off", "set full_page_writes = on, unless the file system writes pages atomically: a crash may damage the tables"),
	}
	if text(6) != "p" {
		found.Settings = append(found.Settings, mustBe(c, "tables", "not permanent", "not permanent", "create the tables with what "+c.SchemaCommand(sqlstore.PostgreSQL)+" prints: a crash empties these"))
	}
	return nil
}

// mustBe returns a setting whose value is good unless it is wrong.
func mustBe(c *sqlstore.Config, name, value, wrong, fix string) backend.Setting {
	s := backend.Setting{Name: name, Value: value}
	if value == wrong {
		s.Fix, s.Accepted = fix, c.AcceptLoss
	}
	return s
}

// readClock measures the time of a small read, and reads the server's wall clock.
func readClock(ctx context.Context, db sqlstore.DB, found *backend.Inspection) error {
	for range inspectTrips {
		before := time.Now()
		rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
		took := time.Since(before)
		if failed != nil {
			return openFailed(failed)
		}
		if micros, known := rows[0][0].(int64); known && (!found.HasClock || took < found.RoundTrip) {
			found.RoundTrip, found.HasClock = took, true
			found.Clock = time.UnixMicro(micros).Sub(before.Round(0)) - took/2
		}
	}
	return nil
}
