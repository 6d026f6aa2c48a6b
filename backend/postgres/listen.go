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

// heardLimit bounds how long it may take to say that somebody listens, which also shows that the connection is alive.
const heardLimit = 5 * time.Second

// Listen implements [claim.Notifier], on a connection of its own. It returns an error at once where nothing
// would ever be heard.
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
	err := s.listen(inner, changed)
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

// errPooler says why nothing can be heard.
var errPooler = errors.New("a pooler such as pgbouncer stands before the server, and what is notified would not get through")

func (s *Store) listen(ctx context.Context, changed func(name string)) error {
	conn, err := s.db.dial(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
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
		if err := s.sayListening(ctx, conn); err != nil {
			return err
		}
		if first {
			changed("")
		}
		if err := hear(ctx, conn, changed); err != nil {
			return err
		}
	}
}

// sayListening has others notify: as long as nobody listens, they do not.
func (s *Store) sayListening(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, heardLimit)
	defer cancel()
	statement, args := s.ListeningStatement()
	_, err := conn.Exec(ctx, statement, append([]any{pgx.QueryExecModeExec}, args...)...)
	if err != nil && failure(err).Again { // another has just said it
		return nil
	}
	return err
}

// hear passes on notifications, until it is time to say again that somebody listens.
func hear(ctx context.Context, conn *pgx.Conn, changed func(name string)) error {
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
