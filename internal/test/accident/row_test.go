//go:build unix

package accident

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper"
	"github.com/leasekeeper/leasekeeper/backend/postgres"
	"github.com/leasekeeper/leasekeeper/backend/sqlite"
	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/sqlfence"
)

// database is where the rows are.
type database struct {
	*sql.DB
	dialect sqlfence.Dialect
	// gate makes a transaction commit only if the lease is held. There is one if the lease is in this database.
	gate func(ctx context.Context, tx *sql.Tx, l *leasekeeper.Lease) error
}

// database opens the one that the store is, or else a file.
func (b bank) database() (database, error) {
	path, isFile := strings.CutPrefix(b.Database, "sqlite:")
	d := database{dialect: sqlfence.SQLite, gate: sqlite.Gate}
	driver, source := "sqlite", path
	switch {
	case strings.HasPrefix(b.Database, "postgres:"):
		d = database{dialect: sqlfence.PostgreSQL, gate: postgres.GateSQL}
		driver, source = "pgx", b.Database
	case !isFile:
		d.gate, source = nil, filepath.Join(b.Dir, "accounts.db")
	}
	if driver == "sqlite" {
		source = "file:" + source + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)"
	}
	var err error
	d.DB, err = sql.Open(driver, source)
	return d, err
}

func (d database) column() sqlfence.Column {
	return sqlfence.Column{Dialect: d.dialect, Table: "accounts", ID: "id", Token: "token"}
}

func (d database) marks() sqlfence.Table { return sqlfence.Table{Dialect: d.dialect} }

// Both databases understand $1, if the arguments come in that order.
const (
	createTable = `CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL, token BIGINT)`
	insertRow   = `INSERT INTO accounts (id, balance) VALUES ($1, $2)`
	selectRow   = `SELECT balance FROM accounts WHERE id = $1`
	updateRow   = `UPDATE accounts SET balance = $1 WHERE id = $2`
	newBalance  = `balance = $1`
)

// found makes the rows.
func (d database) found(balance int) error {
	ctx := context.Background()
	if _, err := d.ExecContext(ctx, createTable); err != nil {
		return err
	}
	if err := d.marks().Create(ctx, d); err != nil {
		return err
	}
	for _, guarded := range []bool{true, false} {
		for _, kind := range []string{"column", "table", "gate"} {
			if _, err := d.ExecContext(ctx, insertRow, spell(kind, guarded), balance); err != nil {
				return err
			}
		}
	}
	return nil
}

// inRow is a row without any guard.
func (d database) inRow(kind, id string) account {
	return account{
		kind:    kind,
		advance: noGuard,
		balance: func(ctx context.Context) (balance int, err error) {
			err = d.QueryRowContext(ctx, selectRow, id).Scan(&balance)
			return balance, err
		},
		write: func(ctx context.Context, _ fence.Token, balance int) error {
			_, err := d.ExecContext(ctx, updateRow, balance, id)
			return err
		},
	}
}

func (d database) inColumn(guarded bool) account {
	id := spell("column", guarded)
	a := d.inRow("a row with a column for the token", id)
	if a.guarded = guarded; guarded {
		a.advance = func(ctx context.Context, t fence.Token) error { return d.column().Advance(ctx, d, id, t) }
		a.write = func(ctx context.Context, t fence.Token, balance int) error {
			return d.column().Update(ctx, d, id, t, newBalance, balance)
		}
	}
	return a
}

// transact runs a transaction that first does one thing and then perhaps writes.
func (d database) transact(ctx context.Context, first func(*sql.Tx) error, statement string, args ...any) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	if err := first(tx); err != nil {
		return err
	}
	if statement != "" {
		if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (d database) inTransaction(guarded bool) account {
	id := spell("table", guarded)
	a := d.inRow("a transaction with a table of marks", id)
	a.guarded = guarded
	first := func(ctx context.Context, t fence.Token) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			if !guarded {
				return nil
			}
			return d.marks().Guard(ctx, tx, id, t)
		}
	}
	if guarded {
		a.advance = func(ctx context.Context, t fence.Token) error { return d.transact(ctx, first(ctx, t), "") }
	}
	a.write = func(ctx context.Context, t fence.Token, balance int) error {
		return d.transact(ctx, first(ctx, t), updateRow, balance, id)
	}
	return a
}

// behindGate is a row that has no place for tokens. It is written in transactions that the lease itself guards.
// Without the gate it is what the others are without their guards.
func (d database) behindGate() account {
	id := spell("gate", true)
	a := d.inRow("a transaction behind a gate", id)
	a.guarded = true
	a.gated = func(ctx context.Context, l *leasekeeper.Lease, balance int) error {
		return d.transact(ctx, func(tx *sql.Tx) error { return d.gate(ctx, tx, l) }, updateRow, balance, id)
	}
	return a
}
