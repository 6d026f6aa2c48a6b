package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// lookLimit bounds how much longer a look may take than it was asked to. A connection that is dead without saying so is
// given up then.
const lookLimit = 5 * time.Second

// queues are those of all names, as one process sees them. One connection looks at all tickets; all else goes over the
// pool.
type queues struct {
	*sqlstore.Tickets
	store *Store
	conn  *pgx.Conn // used by one goroutine
}

// waitingSettings are those of the session that waits. A role or a database may have others, which would end a look, or
// have the server read a whole table that is mostly empty pages. A look is a new program for the server each time, which
// would plan each of its statements for the first five executions.
const waitingSettings = `SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
	SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; SET default_transaction_deferrable = off;
	SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan`

// noticing has the server notice soon that the process is gone while it looks. Servers before version 14 do not know it.
const noticing = `SET client_connection_check_interval = '500ms'`

// Queues implements [claim.Queuer].
func (s *Store) Queues(ctx context.Context) (claim.Queues, error) {
	if !s.HasQueues() {
		return nil, s.ErrNoQueues("the table of tickets is missing, or this user may not use it")
	}
	ctx, cancel := context.WithTimeout(ctx, heardLimit)
	defer cancel()
	conn, err := s.db.dial(ctx)
	if err != nil {
		return nil, s.waits(ctx, err)
	}
	q := &queues{Tickets: s.Tickets(rand.Int64()), store: s, conn: conn}
	if err := q.begin(ctx); err != nil {
		hangUp(ctx, conn)
		return nil, err
	}
	return q, nil
}

// begin has the session show that this process runs.
func (q *queues) begin(ctx context.Context) error {
	direct, err := reachesServer(ctx, q.conn)
	if err != nil {
		return q.store.waits(ctx, err)
	}
	if !direct {
		return q.store.ErrNoQueues(errPooler.Error())
	}
	if _, err := q.conn.Exec(ctx, waitingSettings, pgx.QueryExecModeSimpleProtocol); err != nil {
		return q.store.waits(ctx, err)
	}
	_, _ = q.conn.Exec(ctx, noticing, pgx.QueryExecModeSimpleProtocol)
	open := q.Open()
	if _, err := q.conn.Exec(ctx, open.Text, append([]any{pgx.QueryExecModeExec}, open.Args...)...); err != nil {
		return q.store.waits(ctx, err)
	}
	return q.Sweep(ctx)
}

// Look implements [claim.Queues].
func (q *queues) Look(ctx context.Context, l claim.Look) ([]claim.Standing, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, l.For+lookLimit, errors.New("the server did not answer"))
	defer cancel()
	var watch sync.WaitGroup
	defer watch.Wait()
	done := make(chan struct{})
	defer close(done)
	watch.Go(func() {
		select {
		case <-q.store.Closed():
			cancel()
		case <-done:
		}
	})
	var batch pgx.Batch
	statements := q.Tickets.Look(l)
	for _, s := range statements {
		batch.Queue(s.Text, s.Args...)
	}
	results := q.conn.SendBatch(ctx, &batch)
	var rows [][]any
	var err error
	for i := 0; i < len(statements) && err == nil; i++ {
		rows, err = collect(results.Query())
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, q.store.waits(ctx, err)
	}
	return q.Standings(rows)
}

// Close implements [claim.Queues].
func (q *queues) Close(ctx context.Context) {
	_ = q.Empty(ctx) // else others find that the process is gone
	hangUp(ctx, q.conn)
}

// waits is the error of the session that waits.
func (s *Store) waits(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("postgres: wait: %w: %w", backend.ErrUnavailable, cause)
	}
	f := failure(err)
	kind := f.Kind
	switch {
	case f.Missing, f.Denied:
		s.UseQueues(false)
		kind = backend.ErrUnsupported
	case kind == backend.ErrUnknownOutcome: // nothing rests on it
		kind = backend.ErrUnavailable
	}
	return fmt.Errorf("postgres: wait: %w: %w", kind, f)
}

// dial makes a connection of its own, as the pool makes its connections.
func (d *database) dial(ctx context.Context) (*pgx.Conn, error) {
	settings := d.pool.Config()
	if settings.BeforeConnect != nil {
		if err := settings.BeforeConnect(ctx, settings.ConnConfig); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, settings.ConnConfig)
	if err != nil {
		return nil, err
	}
	if settings.AfterConnect != nil {
		if err := settings.AfterConnect(ctx, conn); err != nil {
			hangUp(ctx, conn)
			return nil, err
		}
	}
	return conn, nil
}

// hangUp closes a connection.
func hangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), heardLimit)
	defer cancel()
	_ = conn.Close(ctx)
}
