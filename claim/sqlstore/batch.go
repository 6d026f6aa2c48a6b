package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leasekeeper/leasekeeper/backend"
)

const (
	// maxUnderWay is how many owner changes may be under way before others wait for them.
	maxUnderWay = 2
	// maxBatch is how many writes one batch commits, and batchLimit bounds how long that may take.
	maxBatch   = 64
	batchLimit = 5 * time.Second
	// longWait is how long a write waits for those under way. If they take longer, something is wrong with
	// them, and the write runs alongside them.
	longWait = 50 * time.Millisecond
)

// Statement is an SQL statement with its arguments.
type Statement struct {
	Text string
	Args []any
}

// BatchCommitter is a DB that can commit several statements in one transaction, which costs hardly more than to
// commit one.
type BatchCommitter interface {
	// CommitBatch runs statements as one transaction, in their order, and returns the rows of each after the
	// commit. An error is a [*Failure] of all of them. Its kind is [backend.ErrUnsupported] if this database
	// never can.
	CommitBatch(ctx context.Context, statements []Statement) ([][][]any, error)
}

// fate is how a write of an owner change is run.
type fate uint8

const (
	queued    fate = iota
	alone          // on its own, as one of those under way
	alongside      // on its own, in addition to those under way
	inBatch        // as part of a batch
)

// ownerWrite is a write that waits until those under way are done.
type ownerWrite struct {
	name      string
	statement Statement
	fate      fate          // guarded by the lock of the queue
	done      chan struct{} // closed when the write is to run on its own, or when rows and failed are set
	rows      [][]any
	failed    *Failure
}

// writeQueue lets a few writes run at the same time, each on its own, while the others wait. When one is done,
// the writes that have gathered run as one batch. Later writes gather until the batch is done. So a single
// writer never waits, and many writers do not need one commit each. Its zero value is ready to use.
type writeQueue struct {
	mu       sync.Mutex
	underWay int
	batching bool // one of those under way is a batch
	waits    []*ownerWrite
	off      bool // no write waits: the database cannot commit batches, or the store is closed
	batches  sync.WaitGroup
}

// enter returns whether a write runs at once. If it waits, enter returns its entry in the queue.
func (q *writeQueue) enter(name string, s Statement) (fate, *ownerWrite) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.off:
		return alongside, nil
	case q.underWay < maxUnderWay && len(q.waits) == 0:
		q.underWay++
		return alone, nil
	}
	w := &ownerWrite{name: name, statement: s, done: make(chan struct{})}
	q.waits = append(q.waits, w)
	return queued, w
}

// finish notes that a write, or a batch, is done. It returns the writes of the batch that takes its place, if
// there is one.
func (q *writeQueue) finish(batch bool) []*ownerWrite {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batching = q.batching && !batch
	if q.batching || len(q.waits) == 0 {
		q.underWay--
		return nil
	}
	return q.startBatch(q.takeOldest())
}

// startBatch starts writes in the place of one that is done. The caller holds the lock.
func (q *writeQueue) startBatch(batch []*ownerWrite) []*ownerWrite {
	if len(batch) == 1 {
		batch[0].fate = alone
		close(batch[0].done)
		return nil
	}
	q.batching = true
	for _, w := range batch {
		w.fate = inBatch
	}
	q.batches.Add(1)
	return batch
}

// takeOldest removes the writes that waited longest, at most one of each name. The caller holds the lock.
func (q *writeQueue) takeOldest() []*ownerWrite {
	var batch []*ownerWrite
	left := q.waits[:0]
	names := make(map[string]bool, len(q.waits))
	for _, w := range q.waits {
		if names[w.name] || len(batch) == maxBatch {
			left = append(left, w)
			continue
		}
		names[w.name] = true
		batch = append(batch, w)
	}
	clear(q.waits[len(left):])
	q.waits = left
	return batch
}

// withdraw removes w if it still waits, and returns its fate before that.
func (q *writeQueue) withdraw(w *ownerWrite) fate {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, other := range q.waits {
		if other == w {
			q.waits = append(q.waits[:i], q.waits[i+1:]...)
			break
		}
	}
	return w.fate
}

// stopBatching notes that the writes under way take long, so no batch is to be waited for.
func (q *writeQueue) stopBatching() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.batching = false
}

// turnOff makes writes run without waiting from now on.
func (q *writeQueue) turnOff() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.off = true
	for _, w := range q.waits {
		w.fate = alongside
		close(w.done)
	}
	q.waits = nil
}

// await returns when w may run on its own, or its outcome is known.
func (q *writeQueue) await(ctx context.Context, w *ownerWrite) (fate, *Failure) {
	long := time.NewTimer(longWait)
	defer long.Stop()
	for {
		select {
		case <-w.done:
			return w.fate, w.failed
		case <-long.C:
			if q.withdraw(w) == queued {
				q.stopBatching()
				return alongside, nil
			}
		case <-ctx.Done():
			switch t := q.withdraw(w); t {
			case queued:
				return t, &Failure{Kind: backend.ErrUnavailable, Err: ctx.Err()}
			case inBatch: // the batch that is under way may or may not write it
				return t, &Failure{Kind: backend.ErrUnknownOutcome, Err: ctx.Err()}
			default:
				return t, nil // the statement finds that the context has ended
			}
		}
	}
}

// writeOwner runs the statement of a swap that changes the owner, on its own or in a batch with those of other
// names. now is the variant that writes nothing if the row is locked, instead of waiting for that lock. So it
// does not delay the rest of its batch; if it wrote nothing, the statement itself runs alongside the others.
func (s *Store) writeOwner(ctx context.Context, what, name, statement, now string, args []any) ([][]any, error) {
	turn, w := s.queue.enter(name, Statement{now, args})
	if turn == queued {
		var f *Failure
		if turn, f = s.queue.await(ctx, w); f != nil {
			return nil, fmt.Errorf("%s: %s: %w: %w", s.Scheme(), what, f.Kind, f.detail())
		}
	}
	switch turn {
	case inBatch:
		if len(w.rows) > 0 {
			return w.rows, nil
		}
	case alone:
		// No transaction locks a vacant row for long.
		if statement == s.statements.take || statement == s.statements.queue.take {
			now = statement
		}
		rows, err := s.writeAlone(ctx, what, now, args)
		if err != nil || len(rows) > 0 || now == statement {
			return rows, err
		}
	}
	return s.write(ctx, what, statement, args...)
}

// writeAlone runs one of the writes under way.
func (s *Store) writeAlone(ctx context.Context, what, statement string, args []any) ([][]any, error) {
	defer s.writeFinished(false)
	return s.write(ctx, what, statement, args...)
}

// writeFinished lets waiting writes take the place of a write, or batch, that is done.
func (s *Store) writeFinished(batch bool) {
	if batch := s.queue.finish(batch); batch != nil {
		go s.commitBatch(batch) // Wait waits for it
	}
}

// commitBatch writes a batch. A write that the batch has not written, for whatever reason, is tried again on
// its own, unless its outcome is unknown.
func (s *Store) commitBatch(batch []*ownerWrite) {
	defer s.queue.batches.Done()
	ctx, cancel := context.WithTimeout(context.Background(), batchLimit)
	defer cancel()
	statements := make([]Statement, len(batch))
	for i, w := range batch {
		statements[i] = w.statement
	}
	rows, err := s.committer.CommitBatch(ctx, statements)
	var f *Failure
	if err != nil {
		f = failureOf(err)
	}
	if f != nil && errors.Is(f.Kind, backend.ErrUnsupported) {
		s.queue.turnOff()
	}
	s.writeFinished(true)
	for i, w := range batch {
		switch {
		case f == nil:
			w.rows = rows[i]
		case errors.Is(f.Kind, backend.ErrUnknownOutcome):
			w.failed = f
		}
		close(w.done)
	}
}

// Wait returns when no batch is under way: its callers may be gone by then. The owner of the database calls it
// when the store is closed.
func (s *Store) Wait() {
	s.queue.turnOff()
	s.queue.batches.Wait()
}
