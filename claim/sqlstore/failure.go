package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/internal/backoff"
)

// DB runs statements for a [Store]. It is safe for concurrent use.
type DB interface {
	// Query runs one statement as a transaction of its own and returns all its rows after the commit. Values
	// are string, int64, bool or nil. An error is a [*Failure].
	Query(ctx context.Context, statement string, args ...any) ([][]any, error)
	// Script runs several statements without arguments as one transaction. An error is a [*Failure].
	Script(ctx context.Context, statements string) error
}

// OwnerNotifier is a DB that notifies processes that wait or watch of changes of owners. These are hints, and
// nothing depends on them.
type OwnerNotifier interface {
	// OwnerChanged is called after each write that has changed the owner of a name, or may have, while any
	// process listens. vacant says that the name has no holder then. OwnerChanged returns at once.
	OwnerChanged(name string, vacant bool)
}

// Failure says why a statement failed.
type Failure struct {
	// Kind is [backend.ErrUnavailable] if certainly nothing was changed, and [backend.ErrUnknownOutcome] if a
	// change may have happened or may still happen. After an error of another kind nothing was changed either.
	Kind error
	// Again says that nothing was changed, and that the same statement is likely to succeed soon.
	Again bool
	// Missing says that a table or column is missing, and Denied that the user lacks the privilege.
	Missing, Denied bool
	Advice          string // what the user should do; may be empty
	Err             error
}

func (f *Failure) Error() string { return f.detail().Error() }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) detail() error {
	if f.Advice == "" {
		return f.Err
	}
	return fmt.Errorf("%s: %w", f.Advice, f.Err)
}

// HarmlessKind is the kind of the failure if no harm comes from an unknown outcome: the statement only reads, or makes what
// the next opening of the store makes if it is missing. The caller may run such a statement again.
func (f *Failure) HarmlessKind() error {
	if f.Kind == backend.ErrUnknownOutcome {
		return backend.ErrUnavailable
	}
	return f.Kind
}

// failureOf returns an error of a DB as a Failure.
func failureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	return &Failure{Kind: backend.ErrUnknownOutcome, Err: err}
}

// The pauses before a statement is run again.
const (
	firstRest   = time.Millisecond
	longestRest = 40 * time.Millisecond
)

// read runs a statement that changes nothing. what appears in its error.
func (s *Store) read(ctx context.Context, what, statement string, args ...any) ([][]any, error) {
	rows, f := s.query(ctx, statement, args...)
	if f == nil {
		return rows, nil
	}
	return nil, fmt.Errorf("%s: %s: %w: %w", s.Scheme(), what, f.HarmlessKind(), f.detail())
}

// write runs a statement that changes something. what appears in its error.
func (s *Store) write(ctx context.Context, what, statement string, args ...any) ([][]any, error) {
	rows, f := s.query(ctx, statement, args...)
	if f == nil {
		return rows, nil
	}
	return nil, fmt.Errorf("%s: %s: %w: %w", s.Scheme(), what, f.Kind, f.detail())
}

var errStoreClosed = errors.New("the store was closed by this program")

// query runs a statement, and again while the database is only busy.
func (s *Store) query(ctx context.Context, statement string, args ...any) ([][]any, *Failure) {
	select {
	case <-s.closed:
		return nil, &Failure{Kind: backend.ErrClosed, Err: errStoreClosed}
	default:
	}
	rows, f := Ask(ctx, s.db, s.config.Patience, statement, args...)
	if twin := s.statements.withoutTickets(statement); f != nil && (f.Missing || f.Denied) && twin != "" {
		s.queues.Store(false)
		rows, f = Ask(ctx, s.db, s.config.Patience, twin, args...)
	}
	if f != nil && f.Missing && f.Advice == "" {
		f.Advice = "the tables are not as they should be: compare them with what " + s.config.SchemaCommand(s.dialect) + " prints"
	}
	return rows, f
}

// Ask runs a statement, and again for as long as patience allows if the database is only busy.
func Ask(ctx context.Context, db DB, patience time.Duration, statement string, args ...any) ([][]any, *Failure) {
	limit := time.Now().Add(patience)
	for tries := 0; ; tries++ {
		if err := ctx.Err(); err != nil {
			return nil, &Failure{Kind: backend.ErrUnavailable, Err: err}
		}
		rows, err := db.Query(ctx, statement, args...)
		if err == nil {
			return rows, nil
		}
		f := failureOf(err)
		if !f.Again || time.Now().After(limit) {
			return nil, f
		}
		if !rest(ctx, backoff.Doubled(firstRest, longestRest, tries)) {
			return nil, &Failure{Kind: f.Kind, Err: fmt.Errorf("%w while waiting: %w", ctx.Err(), f.detail())}
		}
	}
}

// rest pauses for about d. It returns false if ctx ends before.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(backoff.Around(d, 2, rand.Uint64()))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
