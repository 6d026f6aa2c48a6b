package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// Config is the configuration of a store. The zero Config is usable.
type Config struct {
	// Namespace separates unrelated leases. Empty means [sqlstore.DefaultNamespace].
	Namespace string
	// Prefix begins the names of the tables. Empty means [sqlstore.DefaultPrefix].
	Prefix string
	// Schema is the schema of the tables. Empty means the schema where the search path finds them, or else the first
	// schema of the search path.
	Schema string
	// StoreClock makes the clock of the database decide when leases end. It is a property of the namespace and never
	// changes.
	StoreClock bool
	// Patience bounds for how long a statement is repeated that concurrent statements make fail. Zero means
	// [sqlstore.DefaultPatience].
	Patience time.Duration
	// AcceptLoss accepts a database whose settings let a crash undo acknowledged writes. Two processes may then hold one
	// name.
	AcceptLoss bool
}

// Store keeps leases in a PostgreSQL database. It is safe for concurrent use.
type Store struct {
	*sqlstore.Store
	db    runner
	close func() // closes the pool that the store made; nil if there is none

	look      support   // the state of the function for looks when the store was opened
	slowLooks sync.Once // logs that the store looks without it
}

var (
	_ claim.Store          = (*Store)(nil)
	_ claim.Batcher        = (*Store)(nil)
	_ claim.Notifier       = (*Store)(nil)
	_ claim.Judge          = (*Store)(nil)
	_ claim.Clocks         = (*Store)(nil)
	_ claim.PriorityQueuer = (*Store)(nil)
)

// connect connects to a database. The settings are a URL or text as psql takes it.
func connect(ctx context.Context, settingsText string, c Config) (*Store, error) {
	settings, err := pgxpool.ParseConfig(settingsText)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	connection := settings.ConnConfig
	if connection.RuntimeParams["application_name"] == "" {
		connection.RuntimeParams["application_name"] = "leasekeeper"
	}
	if connection.ValidateConnect == nil { // only one of several hosts is the primary
		connection.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	limitUse(settings)
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	db, err := newDatabase(pooled{pool})
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	db.shares = sharesOf(settingsText, settings)
	s, err := newStore(ctx, db, c)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.close = pool.Close
	return s, nil
}

const (
	// pingAfter is how long a connection may be idle before the pool pings it. A statement on a dead connection does no
	// harm, because its outcome is read back.
	pingAfter = 5 * time.Second
	// idleAfter is how long an unused connection is kept, so that a process that only waits soon has a single connection.
	idleAfter = time.Minute
	idleCheck = 15 * time.Second
	// The defaults of pgxpool.
	defaultIdle, defaultCheck = 30 * time.Minute, time.Minute
)

// limitUse makes a pool use few connections and messages, unless its settings say otherwise.
func limitUse(settings *pgxpool.Config) {
	settings.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfter }
	if settings.MaxConnIdleTime == defaultIdle && settings.HealthCheckPeriod == defaultCheck {
		settings.MaxConnIdleTime, settings.HealthCheckPeriod = idleAfter, idleCheck
	}
}

// New returns a store in the database of the caller's pool. Closing the store leaves the pool open.
func New(ctx context.Context, pool *pgxpool.Pool, c Config) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgres: %w: New needs a pool, not nil", backend.ErrInvalid)
	}
	db, err := newDatabase(pooled{pool})
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	return newStore(ctx, db, c)
}

// NewDB returns a store in the caller's database, for programs that use database/sql, or a library on top of it.
// Closing the store leaves db open. What the store can do depends on the driver:
//
//   - With pgx's driver (package stdlib of pgx) it can do all that a store of [New] can. The connections that it opens for
//     renewals, for waiting and for listening have the settings of the newest connection of db. Of the options of
//     stdlib.OpenDB it does not call OptionAfterConnect for them.
//   - With another driver for PostgreSQL, such as lib/pq, processes poll, without notifications, and ask for their places in the queue.
//     Renewals use the connections of db, so leases are lost if db is exhausted for longer than they last.
//
// A store on another driver counts each write as possibly done whose error does not certainly say otherwise. It then
// reads what became of the write.
func NewDB(ctx context.Context, db *sql.DB, c Config) (*Store, error) {
	if db == nil {
		return nil, fmt.Errorf("postgres: %w: NewDB needs a database, not nil", backend.ErrInvalid)
	}
	conns := &standard{db: db}
	isPgx, err := conns.probe(ctx)
	if err != nil {
		return nil, openFailed(acquireFailure(err))
	}
	if !isPgx {
		return newStore(ctx, newOtherDriver(db), c)
	}
	d, err := newDatabase(conns)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w: %w", backend.ErrInvalid, err)
	}
	return newStore(ctx, d, c)
}

func newStore(ctx context.Context, db runner, c Config) (*Store, error) {
	shared := c.shared()
	if shared.Prefix == "" {
		shared.Prefix = sqlstore.DefaultPrefix
	}
	if err := examine(ctx, db, &shared); err != nil {
		return nil, err
	}
	s, err := sqlstore.New(ctx, db, sqlstore.PostgreSQL, shared)
	if err != nil {
		return nil, err
	}
	look, err := prepareQueues(ctx, db, s)
	if err != nil {
		return nil, err
	}
	db.alive().notifier.send = func(ctx context.Context, names []string) error {
		statement, args := s.NotifyStatement(names)
		_, err := db.Query(ctx, statement, args...)
		return err
	}
	return &Store{Store: s, db: db, look: look}, nil
}

// examine determines the schema, so that a different search path on another connection cannot lead to other tables. It
// returns an error if the server could lose acknowledged writes.
func examine(ctx context.Context, db sqlstore.DB, c *sqlstore.Config) error {
	rows, failed := sqlstore.Ask(ctx, db, sqlstore.DefaultPatience, `SELECT pg_is_in_recovery(), current_setting('fsync'), current_setting('synchronous_commit'),
		coalesce((SELECT nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(quote_ident($1))), current_schema())::text`, c.Prefix+"namespace")
	if failed != nil {
		return openFailed(failed)
	}
	standby, _ := rows[0][0].(bool)
	fsync, _ := rows[0][1].(string)
	commit, _ := rows[0][2].(string)
	schema, _ := rows[0][3].(string)
	switch {
	case standby:
		return fmt.Errorf("postgres: %w: this server is a standby, which takes no writes and may return old data: connect to the primary", backend.ErrUnavailable)
	case fsync == "off" && !c.AcceptLoss:
		return fmt.Errorf("postgres: %w: the server runs with fsync = off, so that a crash may undo what was acknowledged: set it to on, or accept the loss", backend.ErrInvalid)
	case commit == "off" && !c.AcceptLoss:
		return fmt.Errorf("postgres: %w: synchronous_commit is off, so that a crash may undo what was acknowledged: set it to on for this user, or accept the loss", backend.ErrInvalid)
	case c.Schema == "" && schema == "":
		return fmt.Errorf("postgres: %w: the search path of this user has no schema that exists: set schema", backend.ErrInvalid)
	case c.Schema == "":
		c.Schema = schema
	}
	return nil
}

// openFailed returns the error of a store whose database was not examined.
func openFailed(f *sqlstore.Failure) error {
	return fmt.Errorf("postgres: open: %w: %w", f.HarmlessKind(), f)
}

// Judges implements [claim.Judge].
func (s *Store) Judges() bool { return s.Config().StoreClock }

// Close implements [claim.Store]. It still notifies of the last releases, for at most a second.
func (s *Store) Close(ctx context.Context) error {
	err := s.Store.Close(ctx)
	alive := s.db.alive()
	alive.notifier.close(ctx, alive.close)
	s.Wait()
	s.db.shut()
	if s.close != nil {
		s.close()
	}
	return err
}
