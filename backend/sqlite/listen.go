package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// queryer is a *sql.DB or one of its connections.
type queryer interface {
	QueryRowContext(ctx context.Context, statement string, args ...any) *sql.Row
}

// A listener spends no more than one part in share of its time with looking, unless it would then rest for
// longer than longestRest.
const (
	share       = 20
	longestRest = 250 * time.Millisecond
)

// Listen implements [claim.Notifier]. It looks at the file again and again, mostly only at whether any process
// has written at all.
func (s *Store) Listen(ctx context.Context, changed func(name string)) error {
	var from queryer = s.file.db
	if s.file.db.Stats().MaxOpenConnections != 1 {
		// data_version belongs to one connection. A single connection must not be kept from other users.
		conn, err := s.file.db.Conn(ctx)
		if err != nil {
			return s.listens(ctx, err)
		}
		defer conn.Close()
		from = conn
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var seen fileState
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Closed():
			return s.ErrClosed()
		case <-timer.C:
		}
		began := time.Now()
		now, err := s.readState(ctx, from, seen)
		if f := failureOf(err, false); f != nil && !f.Again {
			return s.listens(ctx, err)
		} else if err == nil && (now.owners != seen.owners || !seen.known) {
			changed("")
		}
		if err == nil {
			seen = now
		}
		timer.Reset(max(s.config.Poll, min(share*time.Since(began), longestRest)))
	}
}

// fileState is what a look at the file has shown.
type fileState struct {
	known   bool
	version int64  // of the data, as the connection sees it
	owners  string // changes with each owner
}

// readState checks whether anything was written, and reads more only then.
func (s *Store) readState(ctx context.Context, from queryer, seen fileState) (fileState, error) {
	now := fileState{known: true}
	if err := from.QueryRowContext(ctx, "PRAGMA data_version").Scan(&now.version); err != nil {
		return seen, err
	}
	_, single := from.(*sql.DB) // a connection does not see its own writes
	if seen.known && seen.version == now.version && !single {
		return seen, nil
	}
	err := from.QueryRowContext(ctx, s.Owners(), s.Config().Namespace).Scan(&now.owners)
	return now, err
}

// listens returns the error of a listener that could not listen.
func (s *Store) listens(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	select {
	case <-s.Closed():
		return s.ErrClosed()
	default:
	}
	f := failureOf(err, false)
	return fmt.Errorf("sqlite: listen: %w: %w", f.Kind, f)
}
