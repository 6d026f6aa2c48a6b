package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasekeeper/leasekeeper/driver"
)

// A connection on which nothing comes is asked whether it is still alive.
const (
	quiet     = 20 * time.Second
	pingLimit = 5 * time.Second
)

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
	case errors.Is(cause, driver.ErrClosed):
		return cause
	}
	return fmt.Errorf("postgres: listen: %w: %w", driver.ErrUnavailable, err)
}

// errPooler says why nothing can be heard.
var errPooler = errors.New("a pooler such as pgbouncer stands before the server, and what is notified would not get through")

func (s *Store) listen(ctx context.Context, changed func(name string)) error {
	conn, err := pgx.ConnectConfig(ctx, s.db.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingLimit)
		defer cancel()
		_ = conn.Close(ctx)
	}()
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
	changed("")
	for {
		if err := hear(ctx, conn, changed); err != nil {
			return err
		}
	}
}

// hear passes on the next notification, or sees after a while without one that the connection is alive.
func hear(ctx context.Context, conn *pgx.Conn, changed func(name string)) error {
	wait, cancel := context.WithTimeout(ctx, quiet)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	switch {
	case err == nil:
		changed(n.Payload)
		return nil
	case ctx.Err() != nil || !pgconn.Timeout(err):
		return err
	}
	ping, cancelPing := context.WithTimeout(ctx, pingLimit)
	defer cancelPing()
	return conn.Ping(ping)
}
