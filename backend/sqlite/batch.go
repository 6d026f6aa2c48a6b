package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
	"github.com/leasekeeper/leasekeeper/claim"
	"github.com/leasekeeper/leasekeeper/claim/sqlstore"
)

const (
	// maxBatch is how many statements one transaction commits.
	maxBatch = 64
	// batchLimit bounds how long a batch may take.
	batchLimit = 5 * time.Second
)

// pendingWrite is a statement that waits for its turn, or for another writer to commit it.
type pendingWrite struct {
	file      *file // of the store that writes
	ctx       context.Context
	text      string
	statement *sql.Stmt // the text, prepared by file
	args      []any
	late      time.Time     // from then on no renewal that has not begun goes before it
	done      chan struct{} // closed when rows and failed are set
	rows      [][]any
	failed    *sqlstore.Failure
}

// writeQueue has the writes that have not begun: of one store, or of all stores of this process that have opened the
// same file themselves.
type writeQueue struct {
	mu    sync.Mutex
	waits []*pendingWrite
}

func (q *writeQueue) add(w *pendingWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waits = append(q.waits, w)
}

// takeRenewal removes the renewal that has waited longest, or returns nil.
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

// takeLate removes the writes that renewals have delayed for as long as they may, at most this many, in order.
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

// takeBatch removes a write together with the oldest other writes, as many as may be committed at once. It adds
// no renewals, each of which may be large. It returns nil if the write has begun already.
func (q *writeQueue) takeBatch(w *pendingWrite, most int) []*pendingWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waits, w)
	if i < 0 {
		return nil
	}
	q.waits = slices.Delete(q.waits, i, i+1)
	batch := []*pendingWrite{w}
	q.waits = slices.DeleteFunc(q.waits, func(other *pendingWrite) bool {
		joins := len(batch) < most && !other.renews()
		if joins {
			batch = append(batch, other)
		}
		return joins
	})
	return batch
}

func (w *pendingWrite) renews() bool { return claim.IsRenewal(w.ctx) }

// write runs a statement that writes. The writer at the head commits for everyone queued behind it, because the
// commit is the most expensive part. Each write is as if alone: it has happened when its caller gets its
// answer.
func (f *file) write(ctx context.Context, text string, statement *sql.Stmt, args []any) ([][]any, *sqlstore.Failure) {
	w := &pendingWrite{file: f, ctx: ctx, text: text, statement: statement, args: args, late: f.now().Add(claim.Yield(ctx)), done: make(chan struct{})}
	f.queue.add(w)
	select {
	case <-w.done:
	case f.writerSlot <- struct{}{}:
		f.takeTurn(w)
		<-f.writerSlot
		<-w.done // it is closed: another writer has committed it, or takeTurn has
	case <-ctx.Done():
		if f.queue.takeBatch(w, 1) != nil {
			return nil, &sqlstore.Failure{Kind: backend.ErrUnavailable, Err: ctx.Err()}
		}
		return nil, &sqlstore.Failure{Kind: backend.ErrUnknownOutcome, Err: ctx.Err()}
	}
	return w.rows, w.failed
}

// takeTurn writes w and the writes that wait with it, unless another writer has. The caller's turn has come.
// One renewal goes first, if there is any. So renewals wait for one batch of others at most, and others for one
// renewal. Turns have the order of the callers, and many may be those of renewals. A write that has waited for
// a third of a TTL goes before the next renewal.
func (f *file) takeTurn(w *pendingWrite) {
	most := 1
	if f.wal { // without WAL a commit can fail because of readers, and leave the transaction open
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

// runBatch writes a batch, in one transaction if it can.
func (f *file) runBatch(batch []*pendingWrite) {
	if len(batch) == 0 {
		return
	}
	failed := f.checkSameFile()
	if failed == nil && (len(batch) < 2 || !f.commitBatch(batch)) {
		for _, w := range batch {
			rows, err := runWrite(w.ctx, w.text, w.statement, w.args)
			w.rows, w.failed = rows, failureOf(err, true)
		}
	}
	for _, w := range batch {
		if failed != nil {
			w.failed = failed
		}
		close(w.done)
	}
}

// commitBatch writes a batch in one transaction, on the database of f. If it returns false nothing was written: one statement fails,
// and must not make the others fail.
func (f *file) commitBatch(batch []*pendingWrite) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(batch[0].ctx), batchLimit)
	defer cancel()
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return false
	}
	prepared := make(map[string]*sql.Stmt) // in the transaction
	for i, w := range batch {
		if i == 1 { // the first statement has locked the file, so no other waits, and none needs a goroutine that ends the wait
			ctx = context.WithoutCancel(ctx)
		}
		statement := prepared[w.text]
		if statement == nil {
			if statement, err = f.prepared.get(ctx, f.db, w.text); err == nil {
				statement = tx.StmtContext(ctx, statement)
				prepared[w.text] = statement
			}
		}
		if err == nil {
			w.rows, err = runWrite(ctx, w.text, statement, w.args)
		}
		if err != nil {
			_ = tx.Rollback() // or SQLite has done so already
			return false
		}
	}
	if failed := failureOf(tx.Commit(), true); failed != nil {
		for _, w := range batch {
			w.rows, w.failed = nil, failed
			if w.file != f && errors.Is(failed.Kind, backend.ErrClosed) { // not by the store of this write
				w.failed = &sqlstore.Failure{Kind: backend.ErrUnknownOutcome, Err: failed.Err}
			}
		}
	}
	return true
}
