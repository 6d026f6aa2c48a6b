package sqlfence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/leasekeeper/leasekeeper/fence"
)

// DefaultTable is the name of the table if [Table].Name is empty.
const DefaultTable = "fencing_marks"

// Table is a table of marks, one row for each name. It is for resources that have no column for a token. It
// may be used by any number of goroutines.
//
// Table removes no row, and neither may you: without its mark an old holder can write again. Names have at most
// [fence.MaxName] bytes.
type Table struct {
	// Dialect is required.
	Dialect Dialect
	// Name is the name of the table; DefaultTable if it is empty. It is quoted, not parsed.
	Name string
}

// Create creates the table unless it exists.
func (m Table) Create(ctx context.Context, db DB) error {
	if err := m.validate("-"); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, m.Dialect.createMarks(m.name())); err != nil {
		return fmt.Errorf("the table %s was not created: %w", m.name(), err)
	}
	return nil
}

// Guard refuses a stale token inside the transaction that writes. Otherwise it raises the mark of that name. Until
// the transaction ends no other transaction passes Guard for the same name (on SQLite, no other one writes at
// all), so the writes take effect in the order of their tokens. Call Guard before any other statement: then no
// previous holder can change what the transaction reads.
//
// After any error roll back: the transaction must not be committed. An error is a [*fence.StaleError],
// [fence.ErrInvalid], [ErrCorrupt], or the database's.
func (m Table) Guard(ctx context.Context, tx *sql.Tx, name string, t fence.Token) error {
	highest, err := m.raise(ctx, tx, name, t)
	if err != nil {
		return err
	}
	if t < highest {
		return &fence.StaleError{Name: name, Token: t, Highest: highest}
	}
	return nil
}

// Highest returns the mark of a name; 0 if it has none. It is for people who inspect a resource: a writer that
// decides by it has a gap between the check and the write.
func (m Table) Highest(ctx context.Context, db DB, name string) (fence.Token, error) {
	if err := m.validate(name); err != nil {
		return 0, err
	}
	return m.readMark(ctx, db, name, "")
}

// readMark reads the mark of a name. suffix is the end of the SELECT.
func (m Table) readMark(ctx context.Context, db DB, name, suffix string) (fence.Token, error) {
	d := m.Dialect
	query := fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s%s", d.quote("token"), d.quote(m.name()), d.quote("name"), d.placeholder(1), suffix)
	var stored any
	err := db.QueryRowContext(ctx, query, name).Scan(&stored)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("the mark of %q cannot be read: %w", name, err)
	}
	highest, err := mark(d.number(stored))
	if err != nil {
		return 0, fmt.Errorf("the mark of %q: %w", name, err)
	}
	return highest, nil
}

// Marks returns marks for a [fence.Guard], which saves each of them in a transaction of its own. Any number of
// guards may share it. It saves nothing, and returns an error, if a power cut could undo a commit.
func (m Table) Marks(db *sql.DB) fence.Marks { return marks{m, db} }

type marks struct {
	table Table
	db    *sql.DB
}

func (m marks) Raise(ctx context.Context, name string, t fence.Token) (fence.Token, error) {
	// One statement would suffice, but only a commit reports reliably that it failed.
	tx, err := m.db.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	highest, err := m.table.raise(ctx, tx, name, t)
	if err != nil {
		return 0, err
	}
	if err := m.table.Dialect.durable(ctx, tx); err != nil {
		return 0, err
	}
	if err := tx.Commit(); err != nil {
		return 0, err
	}
	return highest, nil
}

// raise makes the mark at least t and returns it.
func (m Table) raise(ctx context.Context, tx *sql.Tx, name string, t fence.Token) (fence.Token, error) {
	if err := m.validate(name); err != nil {
		return 0, err
	}
	n, err := number(t)
	if err != nil {
		return 0, err
	}
	// It writes before it reads, so that the row lock keeps other transactions from raising the mark.
	if _, err := tx.ExecContext(ctx, m.Dialect.raiseMark(m.name()), name, n); err != nil {
		return 0, fmt.Errorf("the mark of %q was not raised to %d: %w", name, t, err)
	}
	highest, err := m.readMark(ctx, tx, name, m.Dialect.newest())
	if err == nil && highest < t {
		err = fmt.Errorf("%w: the mark of %q is %d although %d was just stored: a trigger prevents it", ErrCorrupt, name, highest, t)
	}
	return highest, err
}

func (m Table) validate(name string) error {
	switch {
	case m.Dialect == nil:
		return fmt.Errorf("%w: a Table needs a Dialect", fence.ErrInvalid)
	case name == "":
		return fmt.Errorf("%w: the name is empty: name the resource", fence.ErrInvalid)
	case len(name) > fence.MaxName:
		return fmt.Errorf("%w: the name %.40q… has %d bytes: use at most %d", fence.ErrInvalid, name, len(name), fence.MaxName)
	}
	return nil
}

func (m Table) name() string {
	if m.Name == "" {
		return DefaultTable
	}
	return m.Name
}
