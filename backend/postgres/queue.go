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
	"github.com/leasekeeper/leasekeeper/internal/lookout"
)

// lookLimit bounds how much longer than requested a look may take. After that the connection is taken for dead.
const lookLimit = 5 * time.Second

// queues are the tickets of one process in the queues of all names. Looks use their own connection; other statements use
// the pool.
type queues struct {
	*sqlstore.Tickets
	store *Store
	conn  *pgx.Conn // used by one goroutine
}

// waitingSettings are the settings of the session that waits. Settings of the role or the database could end a look, or
// make the server read a whole table of mostly empty pages. force_generic_plan is for a look's program, which is new to
// the server each time: otherwise the server would plan each of its statements again for the first five executions.
const waitingSettings = `SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
	SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off; SET default_transaction_deferrable = off;
	SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan`

// detectClosedClient makes the server end a look soon after the process has ended. Servers before version 14 do not have
// the setting.
const detectClosedClient = `SET client_connection_check_interval = '500ms'`

// Prioritizes implements [claim.PriorityQueuer].
func (s *Store) Prioritizes() bool { return s.HasQueues() }

// Queues implements [claim.Queuer].
func (s *Store) Queues(ctx context.Context) (claim.Queues, error) {
	if !s.HasQueues() {
		return nil, s.ErrNoQueues("the table of tickets is missing, or this user may not use it")
	}
	ctx, cancel := context.WithTimeout(ctx, sessionLimit)
	defer cancel()
	conn, err := s.db.dial(ctx)
	if errors.Is(err, errOtherDriver) {
		return s.polledQueues(), nil
	}
	if err != nil {
		return nil, s.waitError(ctx, err)
	}
	q := &queues{Tickets: s.Tickets(rand.Int64()), store: s, conn: conn}
	err = q.begin(ctx)
	if err != nil {
		closeConn(ctx, conn)
	}
	if errors.Is(err, errPooler) {
		return s.polledQueues(), nil
	} else if err != nil {
		return nil, err
	}
	return q, nil
}

// begin prepares the session and takes the lock that shows that this process runs.
func (q *queues) begin(ctx context.Context) error {
	direct, err := reachesServer(ctx, q.conn)
	if err != nil {
		return q.store.waitError(ctx, err)
	}
	if !direct {
		return errPooler
	}
	// The function for looks finds the tables by the search path. All other statements name the schema, in which others may
	// be able to create operators.
	path := "; SET search_path = pg_catalog, pg_temp"
	if q.store.UsesLookFunction() {
		path = "; SET search_path = " + pgx.Identifier{q.store.Config().Schema}.Sanitize() + ", pg_temp"
	}
	if _, err := q.conn.Exec(ctx, waitingSettings+path, pgx.QueryExecModeSimpleProtocol); err != nil {
		return q.store.waitError(ctx, err)
	}
	_, _ = q.conn.Exec(ctx, detectClosedClient, pgx.QueryExecModeSimpleProtocol)
	if !q.store.UsesLookFunction() {
		q.store.noteSlowLooks(q.store.look)
	}
	open := q.Open()
	if _, err := q.conn.Exec(ctx, open.Text, append([]any{pgx.QueryExecModeExec}, open.Args...)...); err != nil {
		return q.store.waitError(ctx, err)
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
		return nil, q.lookError(ctx, err)
	}
	return q.Standings(rows)
}

// lookError returns the error of a look. If the function for looks is gone, or may no longer be called, later looks do
// without it.
func (q *queues) lookError(ctx context.Context, err error) error {
	if p := serverError(err); p != nil && q.store.UsesLookFunction() && (p.Code == "42883" || p.Code == "42501") {
		q.store.UseLookFunction(false)
		q.store.noteSlowLooks(map[string]support{"42883": missing, "42501": denied}[p.Code])
		return fmt.Errorf("postgres: wait: %w: %w", backend.ErrUnavailable, err)
	}
	return q.store.waitError(ctx, err)
}

// polledQueues are the tickets of one process that has no session of its own at the server: behind a pooler, or with
// another driver. It asks now and then, over the pool.
type polledQueues struct {
	*sqlstore.Tickets
	store *Store
	wake  chan struct{} // has room for one: there is another ticket
}

func (s *Store) polledQueues() *polledQueues {
	return &polledQueues{Tickets: s.PolledTickets(rand.Int64()), store: s, wake: make(chan struct{}, 1)}
}

// Join implements [claim.Queues].
func (q *polledQueues) Join(ctx context.Context, name string) (claim.Standing, error) {
	return q.JoinWith(ctx, name, claim.Ticket{})
}

// JoinWith implements [claim.PriorityQueues].
func (q *polledQueues) JoinWith(ctx context.Context, name string, t claim.Ticket) (claim.Standing, error) {
	is, err := q.Tickets.JoinWith(ctx, name, t)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return is, err
}

// Look implements [claim.Queues].
func (q *polledQueues) Look(ctx context.Context, l claim.Look) ([]claim.Standing, error) {
	return lookout.Look(ctx, l, q.wake, func(ctx context.Context) ([]claim.Standing, error) {
		select {
		case <-q.store.Closed():
			return nil, q.store.ErrClosed()
		default:
			return q.Poll(ctx)
		}
	})
}

// Close implements [claim.Queues].
func (q *polledQueues) Close(ctx context.Context) { _ = q.Empty(ctx) } // otherwise others pass the tickets over

// Close implements [claim.Queues].
func (q *queues) Close(ctx context.Context) {
	_ = q.Empty(ctx) // if it fails, other processes delete the tickets of a process that has ended
	closeConn(ctx, q.conn)
}

// waitError returns the error of the session that waits.
func (s *Store) waitError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("postgres: wait: %w: %w", backend.ErrUnavailable, cause)
	}
	f := failure(err)
	kind := f.HarmlessKind() // no promise depends on it
	if f.Missing || f.Denied {
		s.UseQueues(false)
		kind = backend.ErrUnsupported
	}
	return fmt.Errorf("postgres: wait: %w: %w", kind, f)
}

// closeConn closes a connection, even if ctx has ended.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sessionLimit)
	defer cancel()
	_ = conn.Close(ctx)
}
