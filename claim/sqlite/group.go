package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
	"github.com/leasekeeper/leasekeeper/driver"
)

const (
	// maxGroup is how many statements are committed at once.
	maxGroup = 64
	// groupLimit bounds how long that may take.
	groupLimit = 5 * time.Second
)

// write is a statement that waits for its turn, or for another to write it along.
type write struct {
	ctx       context.Context
	statement *sql.Stmt
	args      []any
	done      chan struct{} // closed when what follows is known
	rows      [][]any
	failed    *sqlstore.Failure
}

// queue has the writes of a store that nobody has begun with.
type queue struct {
	mu    sync.Mutex
	waits []*write
}

func (q *queue) add(w *write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits = append(q.waits, w)
}

// take takes a write out, and with it as many of those that came first as may be written at once. It returns none
// if somebody has begun with it.
func (q *queue) take(w *write, most int) []*write {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waits, w)
	if i < 0 {
		return nil
	}
	q.waits = slices.Delete(q.waits, i, i+1)
	n := min(most-1, len(q.waits))
	group := append([]*write{w}, q.waits[:n]...)
	q.waits = slices.Delete(q.waits, 0, n)
	return group
}

// write runs a statement that writes. Whose turn it is writes for all who wait with him: what costs most is to
// commit, and that is done once. Each is as if alone: it has happened when its caller is told so.
func (f *file) write(ctx context.Context, statement *sql.Stmt, args []any) ([][]any, *sqlstore.Failure) {
	w := &write{ctx: ctx, statement: statement, args: args, done: make(chan struct{})}
	f.queue.add(w)
	select {
	case <-w.done:
	case f.writing <- struct{}{}:
		f.lead(w)
		<-f.writing
		<-w.done // it is closed: somebody was faster, or it was written here
	case <-ctx.Done():
		if f.queue.take(w, 1) != nil {
			return nil, &sqlstore.Failure{Kind: driver.ErrUnavailable, Err: ctx.Err()}
		}
		return nil, &sqlstore.Failure{Kind: driver.ErrUnknownOutcome, Err: ctx.Err()}
	}
	return w.rows, w.failed
}

// lead writes w and what waits with it, unless somebody has. It is the turn of the caller.
func (f *file) lead(w *write) {
	most := 1
	if f.wal { // where there is no log, a commit can fail for those who read, and leave the transaction open
		most = maxGroup
	}
	group := f.queue.take(w, most)
	failed := f.same()
	if failed == nil && (len(group) < 2 || !f.together(group)) {
		for _, w := range group {
			rows, err := f.query(w.ctx, w.statement, w.args)
			w.rows, w.failed = rows, failure(err, true)
		}
	}
	for _, w := range group {
		if failed != nil {
			w.failed = failed
		}
		close(w.done)
	}
}

// together writes a group in one transaction. If it returns false nothing was written: one of them fails, and it
// must not be the others' failure.
func (f *file) together(group []*write) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(group[0].ctx), groupLimit)
	defer cancel()
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	for _, w := range group {
		if w.rows, err = f.query(ctx, tx.StmtContext(ctx, w.statement), w.args); err != nil {
			_ = tx.Rollback() // or SQLite has done so already
			return false
		}
	}
	if failed := failure(tx.Commit(), true); failed != nil {
		for _, w := range group {
			w.rows, w.failed = nil, failed
		}
	}
	return true
}
