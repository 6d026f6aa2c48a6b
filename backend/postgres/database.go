package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// database runs statements on the connections of a pool.
type database struct {
	pool     *pgxpool.Pool
	reserve  *reserve
	prepares bool // on connections that reach the server itself
	teller   *teller
	closed   context.Context // ends with the store, so that nothing that hangs keeps the pool from being closed
	close    context.CancelFunc
}

func newDatabase(pool *pgxpool.Pool) *database {
	settings := pool.Config().ConnConfig
	d := &database{pool: pool, reserve: newReserve(pool), teller: newTeller(),
		prepares: settings.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && settings.StatementCacheCapacity > 0}
	d.closed, d.close = context.WithCancel(context.Background())
	return d
}

// OwnerChanged implements [sqlstore.OwnerNotifier].
func (d *database) OwnerChanged(name string, vacant bool) { d.teller.add(name, vacant) }

// Query implements [sqlstore.DB].
func (d *database) Query(ctx context.Context, statement string, args ...any) ([][]any, error) {
	return d.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) ([][]any, error) {
		mode := d.mode(ctx, conn.Conn(), args)
		all, err := collect(conn.Query(ctx, statement, append([]any{mode}, args...)...))
		if stale(err) {
			sessionOf(conn.Conn()).plain = true
		}
		return all, err
	})
}

// errNoGroups says that a connection does not lead to one session of the server, or that nothing is prepared on it.
var errNoGroups = errors.New("statements are not prepared")

// CommitBatch implements [sqlstore.BatchCommitter], where statements are prepared: the server takes them all up to the end as one
// transaction.
func (d *database) CommitBatch(ctx context.Context, statements []sqlstore.Statement) (all [][][]any, _ error) {
	_, err := d.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) ([][]any, error) {
		switch direct, err := d.direct(ctx, conn.Conn()); {
		case err != nil:
			return nil, &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: err}
		case !direct:
			return nil, &sqlstore.Failure{Kind: backend.ErrUnsupported, Err: errNoGroups}
		}
		var batch pgx.Batch
		for _, s := range statements {
			batch.Queue(s.Text, s.Args...)
		}
		results := conn.SendBatch(ctx, &batch)
		var err error
		for i := 0; i < len(statements) && err == nil; i++ {
			var rows [][]any
			rows, err = collect(results.Query())
			all = append(all, rows)
		}
		err = errors.Join(err, results.Close())
		if stale(err) {
			sessionOf(conn.Conn()).plain = true
		}
		return nil, err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// collect returns all rows of a statement.
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
	return all, rows.Err() // and that it was committed
}

// Script implements [sqlstore.DB].
func (d *database) Script(ctx context.Context, statements string) error {
	_, err := d.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) ([][]any, error) {
		_, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
		return nil, err
	})
	return err
}

// run runs something on a connection. What fails before there is one, has done nothing.
func (d *database) run(ctx context.Context, do func(context.Context, *pgxpool.Conn) ([][]any, error)) ([][]any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.closed, cancel)()
	conn, release, err := d.acquire(ctx)
	if err != nil {
		return nil, unreached(err)
	}
	defer release()
	all, err := do(ctx, conn)
	if err != nil {
		return nil, failure(err)
	}
	return all, nil
}

// acquire returns a connection: for a renewal one of those that are kept for that, if it can. Renewals that use the pool
// instead, and may be slow, leave one of its connections to claims, unless it has no other.
func (d *database) acquire(ctx context.Context) (*pgxpool.Conn, func(), error) {
	leave := func() {}
	if claim.IsRenewal(ctx) {
		conn, release := d.reserve.acquire(ctx)
		if conn != nil {
			return conn, release, nil
		}
		var err error
		if leave, err = d.reserve.enter(ctx); err != nil {
			return nil, nil, err
		}
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		leave()
		return nil, nil, err
	}
	return conn, func() { conn.Release(); leave() }, nil
}

// unreached is the failure to get a connection.
func unreached(err error) *sqlstore.Failure {
	f := &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: err}
	if strings.Contains(err.Error(), "closed pool") { // puddle has a value for it, which pgxpool does not pass on
		f.Kind = backend.ErrClosed
	}
	var p *pgconn.PgError
	if errors.As(err, &p) {
		switch {
		case strings.HasPrefix(p.Code, "28"):
			f.Advice = "the server does not let this user in"
		case p.Code == "3D000":
			f.Kind, f.Advice = backend.ErrInvalid, "the database is not there"
		case p.Code == "53300":
			f.Advice = "the server has no connection left: use fewer, or a pooler"
		}
	}
	return f
}

// failure tells what became of a statement that ended with an error.
func failure(err error) *sqlstore.Failure {
	if f, known := errors.AsType[*sqlstore.Failure](err); known {
		return f
	}
	f := &sqlstore.Failure{Kind: backend.ErrUnknownOutcome, Err: err}
	var p *pgconn.PgError
	switch {
	case pgconn.SafeToRetry(err):
		f.Kind = backend.ErrUnavailable
	case errors.As(err, &p):
		said(f, p)
	}
	return f
}

// said takes what the server said. An error of a statement means that its transaction was rolled back, and so
// surely nothing was done. One that ends the connection can come when it has been committed already.
func said(f *sqlstore.Failure, p *pgconn.PgError) {
	class := p.Code[:min(2, len(p.Code))]
	if p.Severity != "ERROR" && p.SeverityUnlocalized != "ERROR" || class == "08" || p.Code == "40003" {
		return
	}
	f.Kind = backend.ErrUnavailable
	if stale(p) {
		f.Again = true
		f.Advice = "a statement prepared on a connection no longer exists"
		return
	}
	switch p.Code {
	case "40001", "40P01", "23505", "42P07", "42710": // serialization, deadlock; two who make the same tables
		f.Again = true
		f.Advice = "others changed the same rows each time"
	case "55P03", "57014":
		f.Advice = "the server gave up waiting: somebody holds a lock on the row, or lock_timeout or statement_timeout is too short"
	case "25006":
		f.Advice = "this server does not take writes: connect to the primary, and see that default_transaction_read_only is off"
	case "42P01", "42703", "3F000":
		f.Kind, f.Missing = backend.ErrInvalid, true
	case "42501":
		f.Kind, f.Denied = backend.ErrInvalid, true
		f.Advice = "this user lacks a right: GRANT it SELECT, INSERT, UPDATE and DELETE on all the tables"
	case "53100":
		f.Advice = "the disk of the server is full"
	case "XX001", "XX002":
		f.Kind, f.Advice = backend.ErrCorrupt, "the tables are damaged"
	default:
		switch class {
		case "22", "23", "42":
			f.Kind = backend.ErrInvalid
		}
	}
}
