package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

const (
	// maxGroup is how many statements are committed at once.
	maxBatch = 64
	// groupLimit bounds how long that may take.
	batchLimit = 5 * time.Second
)

// write is a statement that waits for its turn, or for another to write it along.
type pendingWrite struct {
	ctx       context.Context
	statement *sql.Stmt
	args      []any
	late      time.Time     // from when on no renewal goes before it that has not begun
	done      chan struct{} // closed when what follows is known
	rows      [][]any
	failed    *sqlstore.Failure
}

// queue has the writes of a store that nobody has begun with.
type writeQueue struct {
	mu    sync.Mutex
	waits []*pendingWrite
}

func (q *writeQueue) add(w *pendingWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits = append(q.waits, w)
}

// takeRenewal takes the renewal out that has waited longest, or returns nil.
func (q *writeQueue) takeRenewal() *pendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.waits, (*pendingWrite).renews)
	if i < 0 {
		return nil
	}
	w := q.waits[i]
	q.waits = slices.Delete(q.waits, i, i+1)
	return w
}

// takeLate takes out those that renewals have kept waiting for as long as they may, up to a number, in order.
func (q *writeQueue) takeLate(now time.Time, most int) (late []*pendingWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits = slices.DeleteFunc(q.waits, func(w *pendingWrite) bool {
		goes := len(late) < most && !w.renews() && !now.Before(w.late)
		if goes {
			late = append(late, w)
		}
		return goes
	})
	return late
}

// take takes a write out, and with it as many of those that came first as may be written at once: no renewals, each of
// which may be large. It returns none if somebody has begun with it.
func (q *writeQueue) takeBatch(w *pendingWrite, most int) []*pendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waits, w)
	if i < 0 {
		return nil
	}
	q.waits = slices.Delete(q.waits, i, i+1)
	group := []*pendingWrite{w}
	q.waits = slices.DeleteFunc(q.waits, func(other *pendingWrite) bool {
		joins := len(group) < most && !other.renews()
		if joins {
			group = append(group, other)
		}
		return joins
	})
	return group
}

func (w *pendingWrite) renews() bool { return claim.IsRenewal(w.ctx) }

// write runs a statement that writes. The writer at the head commits for everyone queued behind it: the commit costs
// most, and is done once. Each write is as if alone: it has happened when its caller gets its answer.
func (f *file) write(ctx context.Context, statement *sql.Stmt, args []any) ([][]any, *sqlstore.Failure) {
	w := &pendingWrite{ctx: ctx, statement: statement, args: args, late: f.now().Add(claim.Yield(ctx)), done: make(chan struct{})}
	f.queue.add(w)
	select {
	case <-w.done:
	case f.writerSlot <- struct{}{}:
		f.takeTurn(w)
		<-f.writerSlot
		<-w.done // it is closed: somebody was faster, or it was written here
	case <-ctx.Done():
		if f.queue.takeBatch(w, 1) != nil {
			return nil, &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: ctx.Err()}
		}
		return nil, &sqlstore.Failure{Kind: backend.ErrUnknownOutcome, Err: ctx.Err()}
	}
	return w.rows, w.failed
}

// lead writes w and what waits with it, unless somebody has. It is the turn of the caller. One renewal goes first, if
// there is any: so renewals wait for one group of others at most, and others for one renewal. Turns come in the order
// of the callers, and many may be those of renewals: who has waited for a third of a TTL goes before the next of them,
// whose turn it may be.
func (f *file) takeTurn(w *pendingWrite) {
	most := 1
	if f.wal { // where there is no log, a commit can fail for those who read, and leave the transaction open
		most = maxBatch
	}
	f.runBatch(f.queue.takeLate(f.now(), most))
	if r := f.queue.takeRenewal(); r != nil {
		f.runBatch([]*pendingWrite{r})
	}
	if w.renews() {
		most = 1
	}
	f.runBatch(f.queue.takeBatch(w, most))
}

// run writes a group, in one transaction if it can.
func (f *file) runBatch(group []*pendingWrite) {
	if len(group) == 0 {
		return
	}
	failed := f.checkSameFile()
	if failed == nil && (len(group) < 2 || !f.commitBatch(group)) {
		for _, w := range group {
			rows, err := f.runStatement(w.ctx, w.statement, w.args)
			w.rows, w.failed = rows, failureOf(err, true)
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
func (f *file) commitBatch(group []*pendingWrite) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(group[0].ctx), batchLimit)
	defer cancel()
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	for _, w := range group {
		if w.rows, err = f.runStatement(ctx, tx.StmtContext(ctx, w.statement), w.args); err != nil {
			_ = tx.Rollback() // or SQLite has done so already
			return false
		}
	}
	if failed := failureOf(tx.Commit(), true); failed != nil {
		for _, w := range group {
			w.rows, w.failed = nil, failed
		}
	}
	return true
}
