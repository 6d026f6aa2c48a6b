package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// runner runs the statements of a store.
type runner interface {
	sqlstore.DB
	sqlstore.OwnerNotifier
	// dial opens a connection that is not one of the program's. The error is errOtherDriver if the driver is not pgx's.
	dial(ctx context.Context) (*pgx.Conn, error)
	// alive returns what ends with the store.
	alive() *lifetime
	// shut closes the connections that the runner has opened besides the program's. It waits for their statements.
	shut()
}

// lifetime is what ends with a store.
type lifetime struct {
	notifier *notifier
	closed   context.Context // ends when the store is closed, so that no hanging statement delays the close of the pool
	close    context.CancelFunc
}

func newLifetime() *lifetime {
	l := &lifetime{notifier: newNotifier()}
	l.closed, l.close = context.WithCancel(context.Background())
	return l
}

func (l *lifetime) alive() *lifetime { return l }

// OwnerChanged implements [sqlstore.OwnerNotifier].
func (l *lifetime) OwnerChanged(name string, vacant bool) { l.notifier.add(name, vacant) }

// bound returns a context that also ends when the store is closed.
func (l *lifetime) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.closed, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// database runs statements on connections of pgx.
type database struct {
	*lifetime
	conns    connections
	reserve  *reserve
	prepares bool   // the settings of the connections let statements be prepared
	shares   string // for [sqlstore.SharedDB]; empty for connections of the caller
}

func newDatabase(conns connections) (*database, error) {
	settings, err := conns.settings()
	if err != nil {
		return nil, err
	}
	connection := settings.ConnConfig
	return &database{lifetime: newLifetime(), conns: conns, reserve: newReserve(settings, conns.most()),
		prepares: connection.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && connection.StatementCacheCapacity > 0}, nil
}

// dial implements runner.
func (d *database) dial(ctx context.Context) (*pgx.Conn, error) { return d.conns.dial(ctx) }

// shut implements runner.
func (d *database) shut() { d.reserve.close() }

// Shares implements [sqlstore.SharedDB].
func (d *database) Shares() string { return d.shares }

// sharesOf identifies the database of a pool that was made from settings, and the settings of its sessions.
func sharesOf(text string, settings *pgxpool.Config) string {
	c := settings.ConnConfig
	servers := fmt.Sprintf("%q %d", c.Host, c.Port)
	for _, other := range c.Fallbacks {
		servers += fmt.Sprintf(" %q %d", other.Host, other.Port)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %s %q %q %q %q", text, servers, c.Database, c.User, c.Password, c.RuntimeParams)) // maps are printed in order
	return hex.EncodeToString(sum[:])
}

// Query implements [sqlstore.DB].
func (d *database) Query(ctx context.Context, statement string, args ...any) ([][]any, error) {
	return d.run(ctx, func(ctx context.Context, conn *pgx.Conn) ([][]any, error) {
		mode := d.mode(ctx, conn, args)
		all, err := collect(conn.Query(ctx, statement, append([]any{mode}, args...)...))
		if stale(err) {
			sessionOf(conn).plain = true
		}
		return all, err
	})
}

// collect returns all rows of a statement, and its error or that of its commit.
func collect(rows pgx.Rows, err error) (all [][]any, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		all = append(all, values)
	}
	return all, rows.Err()
}

// Script implements [sqlstore.DB].
func (d *database) Script(ctx context.Context, statements string) error {
	_, err := d.run(ctx, func(ctx context.Context, conn *pgx.Conn) ([][]any, error) {
		_, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
		return nil, err
	})
	return err
}

// run calls do with a connection. An error before that means that nothing was done.
func (d *database) run(ctx context.Context, do func(context.Context, *pgx.Conn) ([][]any, error)) (all [][]any, _ error) {
	ctx, cancel := d.bound(ctx)
	defer cancel()
	var failed error
	if err := d.use(ctx, func(conn *pgx.Conn) { all, failed = do(ctx, conn) }); err != nil {
		return nil, acquireFailure(err)
	}
	if failed != nil {
		return nil, failure(failed)
	}
	return all, nil
}

// use calls do with a connection. After an error do was not called. A renewal gets a connection of the reserve if one is
// free. Renewals that use the program's connections instead, and may be slow, leave one of them to claims, unless the
// program has only one.
func (d *database) use(ctx context.Context, do func(*pgx.Conn)) error {
	if claim.IsRenewal(ctx) {
		if d.reserve.use(ctx, do) {
			return nil
		}
		leave, err := d.reserve.poolSlots.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	return d.conns.use(ctx, do)
}
