package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

// sessionLimit bounds each statement on the connection of a listener or a waiter, except a look.
const sessionLimit = 5 * time.Second

// Listen implements [claim.Notifier], on its own connection. It returns an error at once if a pooler would keep
// notifications from arriving.
func (s *Store) Listen(ctx context.Context, changed func(name string)) error {
	inner, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-s.Closed():
			cancel(s.ErrClosed())
		case <-inner.Done():
		}
	})
	err := s.receiveAll(inner, changed)
	cancel(nil)
	watch.Wait()
	switch cause := context.Cause(inner); {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(cause, backend.ErrClosed):
		return cause
	}
	return fmt.Errorf("postgres: listen: %w: %w", backend.ErrUnavailable, err)
}

// errPooler is the reason why a session cannot listen or wait.
var errPooler = errors.New("a pooler such as pgbouncer is between this process and the server, and passes no notifications on")

// receiveAll listens on a connection and calls changed for each notification, until the connection fails.
func (s *Store) receiveAll(ctx context.Context, changed func(name string)) error {
	conn, err := s.db.dial(ctx)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	direct, err := reachesServer(ctx, conn)
	if err != nil {
		return err
	}
	if !direct {
		return errPooler
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.Channel()}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	for first := true; ; first = false {
		if err := s.recordListening(ctx, conn); err != nil {
			return err
		}
		if first {
			changed("")
		}
		if err := receive(ctx, conn, changed); err != nil {
			return err
		}
	}
}

// recordListening records that a process listens: other processes notify only if one does.
func (s *Store) recordListening(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, sessionLimit)
	defer cancel()
	statement, args := s.ListeningStatement()
	_, err := conn.Exec(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil && failure(err).Again { // another process has just recorded the same
		return nil
	}
	return err
}

// receive calls changed for each notification, until it is time to record again that this process listens.
func receive(ctx context.Context, conn *pgx.Conn, changed func(name string)) error {
	wait, cancel := context.WithTimeout(ctx, sqlstore.ListenEvery)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(wait)
		switch {
		case err == nil:
			changed(n.Payload)
		case ctx.Err() == nil && pgconn.Timeout(err):
			return nil
		default:
			return err
		}
	}
}
