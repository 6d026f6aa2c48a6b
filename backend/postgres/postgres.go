package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// Config is how a store is set up. The zero Config is good.
type Config struct {
	// Namespace separates leases that have nothing to do with each other. Empty means
	// [sqlstore.DefaultNamespace].
	Namespace string
	// Prefix is what the names of the tables begin with. Empty means [sqlstore.DefaultPrefix].
	Prefix string
	// Schema is the one with the tables. Empty means the one where they are found by the search path, or else the
	// first of that.
	Schema string
	// StoreClock has the clock of the database judge when leases end. It is a property of the namespace and never
	// changes.
	StoreClock bool
	// Patience is for how long at most a statement is repeated that failed because of others at the same time.
	// Zero means [sqlstore.DefaultPatience].
	Patience time.Duration
	// AcceptLoss accepts a database that is set up so that a crash may undo what was acknowledged: two may then
	// hold one name.
	AcceptLoss bool
}

// Store keeps leases in a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	*sqlstore.Store
	db    *database
	owned bool // the pool was made here
}

var (
	_ claim.Store    = (*Store)(nil)
	_ claim.Batcher  = (*Store)(nil)
	_ claim.Notifier = (*Store)(nil)
	_ claim.Judge    = (*Store)(nil)
	_ claim.Clocks   = (*Store)(nil)
	_ claim.Queuer   = (*Store)(nil)
)

// open connects to a database.
func open(ctx context.Context, settingsOf string, c Config) (*Store, error) {
	settings, err := pgxpool.ParseConfig(settingsOf)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	connection := settings.ConnConfig
	if connection.RuntimeParams["application_name"] == "" {
		connection.RuntimeParams["application_name"] = "leasekeeper"
	}
	if connection.ValidateConnect == nil { // of several hosts only one is the primary
		connection.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	sparing(settings)
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	s, err := newStore(ctx, pool, c)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	return s, nil
}

const (
	// pingAfter is how long a connection may be idle before it is tried with a message of its own. What a statement on a
	// dead connection has done is found out anyway.
	pingAfter = 5 * time.Second
	// idleAfter is how long a connection is kept without use: a process that only waits should take one for that alone.
	idleAfter = time.Minute
	idleCheck = 15 * time.Second
	// What the driver does if nothing is said.
	usualIdle, usualCheck = 30 * time.Minute, time.Minute
)

// sparing has a pool take few connections and messages, unless its settings say otherwise.
func sparing(settings *pgxpool.Config) {
	settings.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	if settings.MaxConnIdleTime == usualIdle && settings.HealthCheckPeriod == usualCheck {
		settings.MaxConnIdleTime, settings.HealthCheckPeriod = idleAfter, idleCheck
	}
}

// New returns a store in the database of the caller's pool, which stays open when the store is closed.
func New(ctx context.Context, pool *pgxpool.Pool, c Config) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgres: %w: no pool", backend.ErrInvalid)
	}
	return newStore(ctx, pool, c)
}

func newStore(ctx context.Context, pool *pgxpool.Pool, c Config) (*Store, error) {
	shared := c.shared()
	if shared.Prefix == "" {
		shared.Prefix = sqlstore.DefaultPrefix
	}
	db := newDatabase(pool)
	if err := examine(ctx, db, &shared); err != nil {
		return nil, err
	}
	s, err := sqlstore.New(ctx, db, sqlstore.PostgreSQL, shared)
	if err != nil {
		return nil, err
	}
	tickets, err := verify(ctx, db, s.Config())
	if err != nil {
		return nil, err
	}
	if tickets == missing && db.Script(ctx, s.TicketSchema()) == nil {
		tickets = usable // the tables are older than the queues
	}
	s.UseQueues(tickets == usable)
	db.teller.send = func(ctx context.Context, names []string) error {
		statement, args := s.NotifyStatement(names)
		_, err := db.Query(ctx, statement, args...)
		return err
	}
	return &Store{Store: s, db: db}, nil
}

// examine finds the schema, so that another search path on another connection does not lead elsewhere, and
// returns an error if the server cannot keep what it acknowledges.
func examine(ctx context.Context, db *database, c *sqlstore.Config) error {
	rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, `SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
		coalesce((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(quote_ident($1))), current_schema())::text`, c.Prefix+"namespace")
	if failed != nil {
		return fmt.Errorf("postgres: open: %w: %w", failed.Kind, failed)
	}
	standby, _ := rows[0][0].(bool)
	fsync, _ := rows[0][1].(string)
	commit, _ := rows[0][2].(string)
	schema, _ := rows[0][3].(string)
	switch {
	case standby:
		return fmt.Errorf("postgres: %w: this server is a standby, which cannot be written and may answer with old data: connect to the primary", backend.ErrUnavailable)
	case fsync == "off" && !c.AcceptLoss:
		return fmt.Errorf("postgres: %w: the server runs with fsync = off, so that a crash may undo what was acknowledged: set it to on, or accept the loss", backend.ErrInvalid)
	case commit == "off" && !c.AcceptLoss:
		return fmt.Errorf("postgres: %w: synchronous_commit is off, so that a crash may undo what was acknowledged: set it to on for this user, or accept the loss", backend.ErrInvalid)
	case c.Schema == "" && schema == "":
		return fmt.Errorf("postgres: %w: the search path of this user names no schema that exists: say which one to use", backend.ErrInvalid)
	case c.Schema == "":
		c.Schema = schema
	}
	return nil
}

// ticketTable is what is known of the table of tickets.
type ticketTable string

const (
	missing ticketTable = "missing"
	denied  ticketTable = "denied"
	usable  ticketTable = "usable"
)

// verify returns an error if the tables lack what the promises rest on and no statement would notice. Nothing rests on
// the table of tickets.
func verify(ctx context.Context, db *database, c sqlstore.Config) (ticketTable, error) {
	rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, `SELECT c.relpersistence::text, coalesce((SELECT
		CASE WHEN has_table_privilege(t.oid, 'SELECT') AND has_table_privilege(t.oid, 'INSERT') AND has_table_privilege(t.oid, 'DELETE') THEN 'usable' ELSE 'denied' END
		FROM pg_class t WHERE t.relnamespace = n.oid AND t.relname = $3), 'missing')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, c.Schema, c.Prefix+"lease", c.Prefix+"ticket")
	if failed != nil {
		return "", fmt.Errorf("postgres: open: %w: %w", failed.Kind, failed)
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("postgres: %w: there is no table %slease in schema %s: run what %s prints", backend.ErrInvalid, c.Prefix, c.Schema, c.SchemaCommand(sqlstore.PostgreSQL))
	}
	persistence, _ := rows[0][0].(string)
	if persistence != "p" && !c.AcceptLoss {
		return "", fmt.Errorf("postgres: %w: the table %slease is not a permanent one, so that a crash empties it: make it with what %s prints", backend.ErrInvalid, c.Prefix, c.SchemaCommand(sqlstore.PostgreSQL))
	}
	tickets, _ := rows[0][1].(string)
	return ticketTable(tickets), nil
}

// Judges implements [claim.Judge].
func (s *Store) Judges() bool { return s.Config().StoreClock }

// Close implements [claim.Store]. Those who wait are still told of what was released last, for no longer than a
// second.
func (s *Store) Close(ctx context.Context) error {
	err := s.Store.Close(ctx)
	s.db.teller.close(ctx, s.db.close)
	s.Wait()
	s.db.reserve.close()
	if s.owned {
		s.db.pool.Close()
	}
	return err
}
