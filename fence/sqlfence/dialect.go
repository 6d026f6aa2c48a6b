package sqlfence

import (
	"context"
	"database/sql"
)

// Dialect holds the differences between databases. It is [SQLite], [PostgreSQL] or [MariaDB]. Other packages cannot
// implement it.
type Dialect interface {
	// placeholder returns the placeholder of the nth argument of a statement, from 1.
	placeholder(n int) string
	// quote returns a name as a quoted identifier.
	quote(name string) string
	// passes returns the condition under which argument n, a token, may write a row: the column holds a token
	// that is not newer, or none. A value that is no token never passes.
	passes(column string, n int) string
	// assign returns the expression that assigns argument n to the token column.
	assign(n int) string
	// changed returns the number of rows that an UPDATE with the token t matched, also if their values stayed
	// the same.
	changed(r sql.Result, t int64) (int64, error)
	// newest returns the end of a SELECT that reads the latest committed row, whatever snapshot its transaction
	// has. The SELECT follows an attempt to write that row.
	newest() string
	// number converts an integer that the driver returns in another form. It returns other values unchanged.
	number(stored any) any
	// createMarks returns the statement that creates a table of marks, unless it exists.
	createMarks(table string) string
	// raiseMark returns a statement with the arguments name and token. The statement does not lower a mark. In
	// any case it locks the mark until the transaction ends.
	raiseMark(table string) string
	// durable returns an error if the database may report a commit before it is on stable storage.
	durable(ctx context.Context, tx *sql.Tx) error
}
