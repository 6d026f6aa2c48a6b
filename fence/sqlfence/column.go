package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/leasekeeper/leasekeeper/fence"
)

// Column is a table with a column for the token of the last write. All fields are required. It may be used by any
// number of goroutines.
//
// Create a row with token 0 or NULL, or with the token of its creator. Names are quoted, not parsed.
type Column struct {
	Dialect Dialect
	Table   string
	// ID is the column that identifies a row: the primary key, or a column with a unique index.
	ID string
	// Token is the column for the token: an integer of 64 bits, BIGINT in most databases.
	Token string
}

// Update changes the row with that id and its token in one statement, unless a newer token wrote it. set is the
// SET clause of SQL's UPDATE, such as "state = ?, runs = runs + 1". args are the arguments for its placeholders in
// their order (in PostgreSQL $1, $2 and so on). set becomes part of the statement: never build it from user input.
//
// db may be a transaction; then the write takes effect when the transaction commits. After a
// [*fence.StaleError], [ErrNotFound], [ErrCorrupt], [ErrContention] or [fence.ErrInvalid] nothing was written.
// Any other error is the database's.
func (c Column) Update(ctx context.Context, db DB, id any, t fence.Token, set string, args ...any) error {
	if strings.TrimSpace(set) == "" {
		return fmt.Errorf("%w: the SET clause for %s is empty: use Advance to raise the token alone", fence.ErrInvalid, c.Table)
	}
	return c.updateRow(ctx, db, id, t, set+", ", args)
}

// Advance raises the token of the row with that id to t and changes nothing else. A new holder calls it before
// it reads the row: from then on no previous holder changes it. Errors are those of Update.
func (c Column) Advance(ctx context.Context, db DB, id any, t fence.Token) error {
	return c.updateRow(ctx, db, id, t, "", nil)
}

// updateRow raises the token of a row and applies set, which is empty or ends with a comma.
func (c Column) updateRow(ctx context.Context, db DB, id any, t fence.Token, set string, args []any) error {
	if c.Dialect == nil || c.Table == "" || c.ID == "" || c.Token == "" {
		return fmt.Errorf("%w: a Column needs Dialect, Table, ID and Token", fence.ErrInvalid)
	}
	n, err := number(t)
	if err != nil {
		return err
	}
	d, next := c.Dialect, len(args)+1
	token := d.quote(c.Token)
	statement := fmt.Sprintf("UPDATE %s SET %s%s = %s WHERE %s = %s AND %s", d.quote(c.Table), set,
		token, d.assign(next), d.quote(c.ID), d.placeholder(next+1), d.passes(token, next+2))
	args = append(append([]any{}, args...), n, id, n)
	const attempts = 3
	for range attempts {
		result, err := db.ExecContext(ctx, statement, args...)
		if err != nil {
			return fmt.Errorf("%s was not updated with token %d: %w", c.Table, t, err)
		}
		changed, err := d.changed(result, n)
		switch {
		case err != nil:
			return fmt.Errorf("it is not known whether %s was updated with token %d: repeat the write with the same token: %w", c.Table, t, err)
		case changed == 1:
			return nil
		case changed > 1:
			return fmt.Errorf("%w: %d rows of %s have the same %s, and all of them were updated: roll back, and name a column that is unique", fence.ErrInvalid, changed, c.Table, c.ID)
		}
		if err := c.whyNot(ctx, db, id, t); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s was not updated with token %d in %d attempts, although its token is not newer: other programs write to it without this check, or a trigger prevents the update", ErrContention, c.Table, t, attempts)
}

// whyNot finds out why no row was changed. It returns nil if the token would pass now.
func (c Column) whyNot(ctx context.Context, db DB, id any, t fence.Token) error {
	d := c.Dialect
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s%s", d.quote(c.Token), d.quote(c.Table), d.quote(c.ID), d.placeholder(1), d.newest())
	var stored any
	err := db.QueryRowContext(ctx, query, id).Scan(&stored)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: %s has no row with %s = %v", ErrNotFound, c.Table, c.ID, id)
	} else if err != nil {
		return fmt.Errorf("%s was not updated with token %d, and the reason cannot be read: %w", c.Table, t, err)
	}
	seen, err := mark(d.number(stored))
	if err != nil {
		return fmt.Errorf("%s with %s = %v: %w", c.Table, c.ID, id, err)
	}
	if seen > t {
		return &fence.StaleError{Name: fmt.Sprintf("%s %v", c.Table, id), Token: t, Highest: seen}
	}
	return nil
}
