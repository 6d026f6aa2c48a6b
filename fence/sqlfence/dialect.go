package sqlfence

import (
	"context"
	"database/sql"
)

// Dialect is what differs between databases: [SQLite], [PostgreSQL] or [MariaDB]. Others cannot be made
// outside this package.
type Dialect interface {
	// placeholder is how the nth argument of a statement is spelt, from 1.
	placeholder(n int) string
	quote(name string) string
	// passes is the condition under which a token column lets the argument at place n write: it holds a token
	// that is no newer, or none yet. What is no token never passes.
	passes(column string, n int) string
	// assign is the expression by which the argument at place n becomes the token of a row.
	assign(n int) string
	// changed is how many rows an UPDATE that assigned the token t has found and changed, also where they were
	// the same before.
	changed(r sql.Result, t int64) (int64, error)
	// newest ends a SELECT that is to see what others committed last, whatever else its transaction sees. It
	// comes after an attempt to write the same row.
	newest() string
	// number is an integer that the driver handed over in another form, or what it handed over.
	number(stored any) any
	createMarks(table string) string
	// raiseMark has the arguments name and token. It changes nothing if the mark is newer, and keeps others
	// from raising it until the transaction ends in either case.
	raiseMark(table string) string
	// durable finds out whether a commit is on stable storage when it returns.
	durable(ctx context.Context, tx *sql.Tx) error
}
