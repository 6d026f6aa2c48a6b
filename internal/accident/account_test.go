//go:build unix

package accident

import (
	"context"
	"database/sql"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	_ "modernc.org/sqlite"

	"github.com/leasekeeper/leasekeeper/fence"
	"github.com/leasekeeper/leasekeeper/fence/filefence"
	"github.com/leasekeeper/leasekeeper/fence/sqlfence"
)

// account is a resource: it holds a number. Each kind of it is there twice, with its guard and without.
type account struct {
	kind    string
	guarded bool
	// advance is what a new holder does before it reads.
	advance func(ctx context.Context, t fence.Token) error
	balance func(ctx context.Context) (int, error)
	write   func(ctx context.Context, t fence.Token, balance int) error
}

func (a account) String() string {
	if a.guarded {
		return a.kind
	}
	return a.kind + " without its guard"
}

// noGuard is how a new holder advances where nobody remembers tokens.
func noGuard(context.Context, fence.Token) error { return nil }

// bank is where the accounts are, as it is told to the holders.
type bank struct {
	Dir string // of the file and of the database
	Web string // where the parent serves the others
}

// open opens all accounts, in the parent and in each holder.
func (b bank) open() (accounts []account, closeAll func() error, err error) {
	db, err := b.database()
	if err != nil {
		return nil, nil, err
	}
	web := new(http.Transport)
	for _, guarded := range []bool{true, false} {
		accounts = append(accounts, b.inFile(guarded), inColumn(db, guarded), inTransaction(db, guarded), b.overHTTP(web, guarded), b.inMemory(web, guarded))
	}
	return accounts, func() error {
		web.CloseIdleConnections()
		return db.Close()
	}, nil
}

// spell is how kinds of accounts with and without guard are named in folders, tables and paths.
func spell(kind string, guarded bool) string {
	if guarded {
		return kind + "-guarded"
	}
	return kind + "-bare"
}

func (b bank) inFile(guarded bool) account {
	path := filepath.Join(b.Dir, spell("file", guarded))
	a := account{kind: "a file", guarded: guarded, advance: noGuard}
	a.balance = func(context.Context) (int, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(string(text))
	}
	a.write = func(_ context.Context, _ fence.Token, balance int) error {
		return os.WriteFile(path, []byte(strconv.Itoa(balance)), 0o600)
	}
	if guarded {
		a.advance = func(_ context.Context, t fence.Token) error { return filefence.Advance(path, t) }
		a.write = func(_ context.Context, t fence.Token, balance int) error {
			return filefence.WriteFile(path, t, []byte(strconv.Itoa(balance)), 0o600)
		}
	}
	return a
}

var (
	column = sqlfence.Column{Dialect: sqlfence.SQLite, Table: "accounts", ID: "id", Token: "token"}
	marks  = sqlfence.Table{Dialect: sqlfence.SQLite}
)

const (
	createTable = `CREATE TABLE accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER)`
	insertRow   = `INSERT INTO accounts (id, balance) VALUES (?, ?)`
	selectRow   = `SELECT balance FROM accounts WHERE id = ?`
	updateRow   = `UPDATE accounts SET balance = ? WHERE id = ?`
)

// found puts the balance into everything that lies in the folder. The parent does it before it starts holders.
func (b bank) found(balance int) error {
	db, err := b.database()
	if err != nil {
		return err
	}
	defer db.Close()
	ctx := context.Background()
	if _, err := db.ExecContext(ctx, createTable); err != nil {
		return err
	}
	if err := marks.Create(ctx, db); err != nil {
		return err
	}
	for _, guarded := range []bool{true, false} {
		for _, kind := range []string{"column", "table"} {
			if _, err := db.ExecContext(ctx, insertRow, spell(kind, guarded), balance); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(b.Dir, spell("file", guarded)), []byte(strconv.Itoa(balance)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (b bank) database() (*sql.DB, error) {
	return sql.Open("sqlite", "file:"+filepath.Join(b.Dir, "accounts.db")+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
}

// inRow is a row without any guard.
func inRow(db *sql.DB, kind, id string) account {
	return account{
		kind:    kind,
		advance: noGuard,
		balance: func(ctx context.Context) (balance int, err error) {
			err = db.QueryRowContext(ctx, selectRow, id).Scan(&balance)
			return balance, err
		},
		write: func(ctx context.Context, _ fence.Token, balance int) error {
			_, err := db.ExecContext(ctx, updateRow, balance, id)
			return err
		},
	}
}

func inColumn(db *sql.DB, guarded bool) account {
	id := spell("column", guarded)
	a := inRow(db, "a row with a column for the token", id)
	if a.guarded = guarded; guarded {
		a.advance = func(ctx context.Context, t fence.Token) error { return column.Advance(ctx, db, id, t) }
		a.write = func(ctx context.Context, t fence.Token, balance int) error {
			return column.Update(ctx, db, id, t, "balance = ?", balance)
		}
	}
	return a
}

func inTransaction(db *sql.DB, guarded bool) account {
	id := spell("table", guarded)
	a := inRow(db, "a transaction with a table of marks", id)
	a.guarded = guarded
	transact := func(ctx context.Context, t fence.Token, statement string, args ...any) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after the commit
		if guarded {
			if err := marks.Guard(ctx, tx, id, t); err != nil {
				return err
			}
		}
		if statement != "" {
			if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
				return err
			}
		}
		return tx.Commit()
	}
	if guarded {
		a.advance = func(ctx context.Context, t fence.Token) error { return transact(ctx, t, "") }
	}
	a.write = func(ctx context.Context, t fence.Token, balance int) error {
		return transact(ctx, t, updateRow, balance, id)
	}
	return a
}
