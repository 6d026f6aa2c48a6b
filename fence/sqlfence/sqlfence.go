package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/leasekeeper/leasekeeper/fence"
)

// The kinds of errors besides [fence.ErrStale] and [fence.ErrInvalid]. Any other error wraps the database's. After
// it, roll back the transaction. Outside a transaction the write may have taken effect or not. In both cases it is
// safe to repeat the write with the same token.
var (
	// ErrNotFound says that there is no row with that id. Nothing was written.
	ErrNotFound = errors.New("no such row")
	// ErrCorrupt says that a token column holds a value that is no token, such as a text or a negative number.
	// Nothing was written. An operator has to set the column to a token.
	ErrCorrupt = errors.New("the token is corrupt")
	// ErrContention says that nothing was written although the row has no newer token: other programs changed the
	// row before each attempt, or a trigger of the table prevents the update.
	ErrContention = errors.New("too much contention")
)

// DB runs statements: a *sql.DB, a *sql.Conn or a *sql.Tx.
type DB interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

var _, _, _ DB = (*sql.DB)(nil), (*sql.Conn)(nil), (*sql.Tx)(nil)

// number returns the token as an integer of the database.
func number(t fence.Token) (int64, error) {
	if t == 0 {
		return 0, fmt.Errorf("%w: 0 is no fencing token: write with the token of the lease", fence.ErrInvalid)
	}
	if t > math.MaxInt64 {
		return 0, fmt.Errorf("%w: token %d is above %d and does not fit the database's integers: check where the token comes from", fence.ErrInvalid, t, int64(math.MaxInt64))
	}
	return int64(t), nil
}

// mark returns the token in a stored value; 0 if there is none.
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
	return 0, fmt.Errorf("%w: it is %v (%T), but must be a whole number that is not negative: set it to the highest token that was used", ErrCorrupt, stored, stored)
}
