package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/leasekeeper/leasekeeper/fence"
)

// Column is a table that has a column for the token of the last write. All fields are required. It may be
// used by any number of goroutines.
//
// A row is created with token 0 or NULL, or with the token of its creator. The names are quoted, not parsed.
type Column struct {
	Dialect Dialect
	Table   string
	// ID is the column that tells rows apart: a primary key, or one with a unique index.
	ID string
	// Token is the column for the token: an integer of 64 bits, BIGINT in most databases.
	Token string
}

// Update changes the row with that id and its token in one statement, unless a newer token wrote it. What to
// change stands in set as in SQL's UPDATE, such as "state = ?, runs = runs + 1", with args for its
// placeholders in their order (in PostgreSQL $1, $2 and so on). It becomes part of the statement: never put together set from what users type.
//
// db may be a transaction; then the write counts when that commits. An error is a [*fence.StaleError],
// [ErrNotFound], [ErrCorrupt], [ErrContention] or [fence.ErrInvalid], and then nothing was written; else it is
// the database's.
func (c Column) Update(ctx context.Context, db DB, id any, t fence.Token, set string, args ...any) error {
	if strings.TrimSpace(set) == "" {
		return fmt.Errorf("%w: nothing is to be set in %s: use Advance to raise the token alone", fence.ErrInvalid, c.Table)
	}
	return c.update(ctx, db, id, t, set+", ", args)
}

// Advance raises the token of the row with that id to t and changes nothing else. It is what a new holder
// does before it reads the row: from then on no older holder changes it. Errors are those of Update.
func (c Column) Advance(ctx context.Context, db DB, id any, t fence.Token) error {
	return c.update(ctx, db, id, t, "", nil)
}

func (c Column) update(ctx context.Context, db DB, id any, t fence.Token, set string, args []any) error {
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
			return fmt.Errorf("whether %s was updated with token %d is not known: %w", c.Table, t, err)
		case changed == 1:
			return nil
		case changed > 1:
			return fmt.Errorf("%w: %d rows of %s have the same %s, and all of them were updated: roll back, and name a column that is unique", fence.ErrInvalid, changed, c.Table, c.ID)
		}
		if err := c.whyNot(ctx, db, id, t); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s was not updated with token %d in %d attempts, although its token is no newer: others write to it without this check, or a trigger prevents it", ErrContention, c.Table, t, attempts)
}

// whyNot finds out why no row was changed. It returns nil if nothing speaks against it any more.
func (c Column) whyNot(ctx context.Context, db DB, id any, t fence.Token) error {
	d := c.Dialect
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s%s", d.quote(c.Token), d.quote(c.Table), d.quote(c.ID), d.placeholder(1), d.newest())
	var stored any
	err := db.QueryRowContext(ctx, query, id).Scan(&stored)
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%w: %s has none with %s = %v", ErrNotFound, c.Table, c.ID, id)
	} else if err != nil {
		return fmt.Errorf("%s was not updated with token %d, and why cannot be read: %w", c.Table, t, err)
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
