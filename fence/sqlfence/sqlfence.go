package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/leasekeeper/leasekeeper/fence"
)

// The kinds of errors besides [fence.ErrStale] and [fence.ErrInvalid]. Errors of the database are passed on
// wrapped; after them it is known only inside a transaction, which must be rolled back then, that nothing was
// written. Repeating the write with the same token is safe.
var (
	// ErrNotFound says that there is no row with that id. Nothing was written.
	ErrNotFound = errors.New("no such row")
	// ErrCorrupt says that a token column holds what is no token, such as a text or a negative number.
	// Nothing was written; somebody has to put it right.
	ErrCorrupt = errors.New("the token is corrupt")
	// ErrContention says that nothing was written although no newer token was found: others changed the row
	// each time it was tried, or a trigger of the table prevents it.
	ErrContention = errors.New("too much contention")
)

// DB is what runs statements: a *sql.DB, a *sql.Conn or a *sql.Tx.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var _, _, _ DB = (*sql.DB)(nil), (*sql.Conn)(nil), (*sql.Tx)(nil)

// number is the token as the database stores it.
func number(t fence.Token) (int64, error) {
	if t == 0 {
		return 0, fmt.Errorf("%w: 0 is no fencing token: write with the token of the lease", fence.ErrInvalid)
	}
	if t > math.MaxInt64 {
		return 0, fmt.Errorf("%w: token %d is above %d and does not fit the database's integers", fence.ErrInvalid, t, int64(math.MaxInt64))
	}
	return int64(t), nil
}

// mark is a token as the database stores it; 0 if there is none.
func mark(stored any) (fence.Token, error) {
	switch n := stored.(type) {
	case nil:
		return 0, nil
	case int64:
		if n >= 0 {
			return fence.Token(n), nil
		}
	case uint64: // of an unsigned column
		return fence.Token(n), nil
	}
	return 0, fmt.Errorf("%w: it is %v (%T), and must be a whole number that is not negative", ErrCorrupt, stored, stored)
}
