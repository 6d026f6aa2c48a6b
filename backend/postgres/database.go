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
	prepares bool // the pool's settings let statements be prepared
	notifier *notifier
	closed   context.Context // ends when the store is closed, so that no hanging statement delays the close of the pool
	close    context.CancelFunc
}

func newDatabase(pool *pgxpool.Pool) *database {
	settings := pool.Config().ConnConfig
	d := &database{pool: pool, reserve: newReserve(pool), notifier: newNotifier(),
		prepares: settings.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement && settings.StatementCacheCapacity > 0}
	d.closed, d.close = context.WithCancel(context.Background())
	return d
}

// OwnerChanged implements [sqlstore.OwnerNotifier].
func (d *database) OwnerChanged(name string, vacant bool) { d.notifier.add(name, vacant) }

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

// errNotPrepared is the reason why a connection commits no batches.
var errNotPrepared = errors.New("statements are not prepared")

// CommitBatch implements [sqlstore.BatchCommitter] where statements are prepared. The server runs all statements of the
// message as one transaction.
func (d *database) CommitBatch(ctx context.Context, statements []sqlstore.Statement) (all [][][]any, _ error) {
	_, err := d.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) ([][]any, error) {
		switch direct, err := d.direct(ctx, conn.Conn()); {
		case err != nil:
			return nil, &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: err}
		case !direct:
			return nil, &sqlstore.Failure{Kind: backend.ErrUnsupported, Err: errNotPrepared}
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
	_, err := d.run(ctx, func(ctx context.Context, conn *pgxpool.Conn) ([][]any, error) {
		_, err := conn.Exec(ctx, statements, pgx.QueryExecModeSimpleProtocol)
		return nil, err
	})
	return err
}

// run calls do with a connection. An error before that means that nothing was done.
func (d *database) run(ctx context.Context, do func(context.Context, *pgxpool.Conn) ([][]any, error)) ([][]any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.closed, cancel)()
	conn, release, err := d.acquire(ctx)
	if err != nil {
		return nil, acquireFailure(err)
	}
	defer release()
	all, err := do(ctx, conn)
	if err != nil {
		return nil, failure(err)
	}
	return all, nil
}

// acquire returns a connection and a function that releases it. A renewal gets a connection of the reserve if one is free.
// Renewals that use the pool instead, and may be slow, leave one of its connections to claims, unless the pool has only
// one.
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

// acquireFailure returns the failure of getting a connection.
func acquireFailure(err error) *sqlstore.Failure {
	f := &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: err}
	if strings.Contains(err.Error(), "closed pool") { // pgxpool hides puddle's error value
		f.Kind = backend.ErrClosed
	}
	var p *pgconn.PgError
	if errors.As(err, &p) {
		switch {
		case strings.HasPrefix(p.Code, "28"):
			f.Advice = "the server rejects this user or its password: check the URL"
		case p.Code == "3D000":
			f.Kind, f.Advice = backend.ErrInvalid, "the database does not exist: create it, or name another"
		case p.Code == "53300":
			f.Advice = "the server has no free connection: use fewer, or a pooler"
		}
	}
	return f
}

// failure returns what the error of a statement means for its outcome.
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
		setKind(f, p)
	}
	return f
}

// setKind sets what follows from an error that the server sent. If a statement fails, the server has rolled its transaction
// back, so nothing was done. An error that ends the connection may come after the commit.
func setKind(f *sqlstore.Failure, p *pgconn.PgError) {
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
	case "40001", "40P01", "23505", "42P07", "42710": // serialization failure, deadlock, or two processes that create the same tables
		f.Again = true
		f.Advice = "other transactions changed the same rows at each attempt"
	case "55P03", "57014":
		f.Advice = "the server stopped waiting for a lock on the row: end the transaction that has it, or raise lock_timeout or statement_timeout"
	case "25006":
		f.Advice = "this server is read-only: connect to the primary, and check that default_transaction_read_only is off"
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
